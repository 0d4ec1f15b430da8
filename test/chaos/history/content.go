package history

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/lately"
	"github.com/everynode/everynode/test/chaos/history/revision"
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
func alike(a, b *corev1.Pod) bool { return has(a, wholeOf(b)) || has(b, wholeOf(a)) }

// contents are all versions of ConfigMaps and Secrets.
func contents(events []Event) (out []metav1.Object) {
	for _, e := range events {
		if revision.RefOf(e.Object) != (revision.Ref{}) {
			out = append(out, e.Object)
		}
	}
	return out
}

// WithContent reports whether a policy makes content a part of revisions.
func WithContent(p *v1alpha1.RolloutPolicy) bool {
	return p != nil && p.Spec.Content != nil &&
		(p.Spec.Content.ConfigMaps != v1alpha1.ContentNone || p.Spec.Content.Secrets == v1alpha1.ContentReferenced)
}

// takenBy reports whether one of some policies makes just the objects of a content a part of revisions.
func takenBy(policies []*v1alpha1.RolloutPolicy, named []revision.Ref, held revision.Held) bool {
	return slices.ContainsFunc(policies, func(p *v1alpha1.RolloutPolicy) bool {
		return WithContent(p) && held.IsOf(revision.Takes(p.Spec.Content, named))
	})
}

func lifeOf(t *track) lately.Life {
	l := lately.Life{Of: revision.RefOf(t.first()), Gone: t.gone}
	for _, v := range t.versions {
		l.Versions = append(l.Versions, lately.Version{From: v.from, Value: revision.Value(v.object)})
	}
	return l
}

// pointed judges that a running pod was given another content: it must be the node's, in its turn.
func (j *judge) pointed(e *Event, p *corev1.Pod) {
	was, _ := j.tracks[p.UID].at(e.Revision - 1).(*corev1.Pod)
	to := p.Annotations[revision.LiveAnnotation]
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
		j.given[d.at] = version{e.Revision, p}
	}
}

// nodesGiven are the nodes, but the decision's own, whose pods were given a content since a revision, and do not show
// it.
func (j *judge) nodesGiven(d decision, since int64) (out []string) {
	for at, given := range j.given {
		switch {
		case at.set != d.at.set || at == d.at:
		case !j.showsNothing(d, at):
			delete(j.given, at)
		case given.from >= since:
			out = append(out, at.node)
		}
	}
	return out
}

// showsNothing reports whether a pod has been given a content of which its node has not said that the pod shows it.
func (j *judge) showsNothing(d decision, at place) bool {
	given := j.given[at].object.(*corev1.Pod)
	since := pods(j.tracks[given.UID].between(j.given[at].from, d.event))
	shown := slices.ContainsFunc(since, revision.LiveOf(given).ShownBy)
	return !shown && j.live(given.UID, d.event) != nil && !j.unwanted(d, at, j.given[at].from)
}

// lastPointed is the revision before another at which a pod was given a content, or was made.
func (j *judge) lastPointed(p *corev1.Pod, before int64) (at int64) {
	said := ""
	for i, v := range j.tracks[p.UID].versions {
		to := v.object.GetAnnotations()[revision.LiveAnnotation]
		if v.from < before && (i == 0 || to != said) {
			at = v.from
		}
		said = to
	}
	return at
}
