package history

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/test/chaos/history/lately"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/history/wants"
)

// wholeOf is the same of a pod.
func wholeOf(p *corev1.Pod) string { return revision.Join(markOf(p), revision.ContentOf(p)) }

// has reports whether a pod is of a revision. Where content is no part of it a pod of the template is as good as
// any other.
func has(p *corev1.Pod, whole string) bool {
	_, id := revision.Split(whole)
	return wholeOf(p) == whole || id == "" && markOf(p) == whole
}

// alike reports whether two pods can have been held for such of one revision.
func alike(a, b *corev1.Pod) bool {
	return (has(a, wholeOf(b)) || has(b, wholeOf(a))) && molds.Twins(a, b)
}

// sameAs reports whether two pods are of one revision, and as its variants say.
func sameAs(a, b *corev1.Pod) bool { return wholeOf(a) == wholeOf(b) && molds.Twins(a, b) }

// outdated is outdatedFrom where a policy may be followed, or variants may say something else.
func (j *judge) outdated(d decision, g *guidance, p *corev1.Pod) (from int64, is bool) {
	from, is = j.outdatedFrom(d, p)
	if g != nil {
		from, is = d.early, is || g.mixed() || j.mayLose(d, g, p)
	}
	if is || !j.varies(d, g, p) {
		return from, is
	}
	return d.early, true
}

// varies reports whether a pod of the newest template can have been another than its variants say.
func (j *judge) varies(d decision, g *guidance, p *corev1.Pod) bool {
	var of []string
	if g != nil {
		for _, r := range slices.Concat(g.rollouts, g.written) {
			of = append(of, r.Status.StableRevision, r.Status.TargetRevision)
		}
	}
	t := j.templateOf(d.at.set, markOf(p))
	made := j.tracks[p.UID].Versions[0].From
	return t != nil && j.molds.Differs(d.at.set, p, &t.Spec.Template, d.at.node, made, d.early-lag, d.event, of...)
}

// contents are all versions of ConfigMaps and Secrets.
func contents(events []Event) (out []metav1.Object) {
	for _, e := range events {
		if revision.RefOf(e.Object) != (revision.Ref{}) {
			out = append(out, e.Object)
		}
	}
	return out
}

func lifeOf(t *track) lately.Life {
	l := lately.Life{Of: revision.RefOf(t.First()), Gone: t.Gone}
	for _, v := range t.Versions {
		l.Versions = append(l.Versions, lately.Version{From: v.From, Value: revision.Value(v.Object)})
	}
	return l
}

// pointed judges that a running pod was given another content: it must be the node's, in its turn.
func (j *judge) pointed(e *Event, p *corev1.Pod) {
	was, _ := j.tracks[p.UID].At(e.Revision - 1).(*corev1.Pod)
	to := p.Annotations[revision.LiveAnnotation]
	if was != nil && ownerOf(p) != "" && molds.Resized(was, p) {
		j.resized(e, was, p)
	}
	if was == nil || to == "" || to == was.Annotations[revision.LiveAnnotation] || ownerOf(p) == "" {
		return
	}
	d, ok := j.decideAfter(e, p, Call{Point: true, Since: j.lastPointed(p, e.Revision)})
	if !ok || d.at.node == "" {
		return
	}
	j.givenOne(d, p)
	g := j.guidanceOf(d)
	if g == nil || g.mixed() {
		return
	}
	if why := j.standsStill(g); why != "" {
		j.report(Still, d.event, g.concerned(d, p.UID), "pod %s was given other content though %s", p.Name, why)
	}
	if len(g.policies) > 0 && j.surelyAvailable(d, was, d.early) {
		j.countTaken(d, g, was, false, revision.LiveOf(p).At)
		delete(j.taken, d.at)
		j.given[d.at] = version{From: e.Revision, Object: p}
	}
}

// resized judges that a running pod was given other amounts: its node is one that is being changed until it holds them.
func (j *judge) resized(e *Event, was, p *corev1.Pod) {
	d, ok := j.decideAfter(e, p, Call{Resize: true, Since: j.tracks[p.UID].Versions[0].From})
	if !ok || d.at.node == "" || !j.surelyAvailable(d, was, d.early) {
		return
	}
	g := j.guidanceOf(d)
	if g == nil {
		if b, of := j.budget(d), j.nodesGiven(d, 0); len(of) >= max(b.Unavailable, b.Surge) {
			all := []*corev1.Pod{p}
			for _, node := range of {
				all = append(all, j.given[place{d.at.set, node}].Object.(*corev1.Pod))
			}
			j.report(Budget, d.event, uids(d, all...), "pod %s on node %s was resized, while %v were", p.Name, d.at.node, of)
		}
	} else {
		j.countDoubled(d, time.Time{}) // which forgets nodes that have one pod again
		j.takenUnderPolicy(d, g, was, d.any(wants.Surges), time.Time{})
		delete(j.taken, d.at)
	}
	j.given[d.at] = version{From: e.Revision, Object: p}
}

// nodesGiven are the nodes, but the decision's own, whose pods were given a content since a revision, and do not show
// it.
func (j *judge) nodesGiven(d decision, since int64) (out []string) {
	for at, given := range j.given {
		switch {
		case at.set != d.at.set || at == d.at:
		case !j.showsNothing(d, at):
			delete(j.given, at)
		case given.From >= since:
			out = append(out, at.node)
		}
	}
	return out
}

// showsNothing reports whether a pod has been given a content of which its node has not said that the pod shows it.
func (j *judge) showsNothing(d decision, at place) bool {
	given := j.given[at].Object.(*corev1.Pod)
	since := pods(j.tracks[given.UID].Between(j.given[at].From, d.event))
	shown := slices.ContainsFunc(since, revision.LiveOf(given).ShownBy)
	shown = shown || revision.LiveOf(given) == (revision.Live{}) && slices.ContainsFunc(since[1:], molds.Answers(given))
	return !shown && j.live(given.UID, d.event) != nil && !j.unwanted(d, at, j.given[at].From)
}

// lastPointed is the revision before another at which a pod was given a content, or was made.
func (j *judge) lastPointed(p *corev1.Pod, before int64) (at int64) {
	said := ""
	for i, v := range j.tracks[p.UID].Versions {
		to := v.Object.GetAnnotations()[revision.LiveAnnotation]
		if v.From < before && (i == 0 || to != said) {
			at = v.From
		}
		said = to
	}
	return at
}
