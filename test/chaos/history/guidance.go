package history

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/lately"
	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/told"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// guidance is what the controller can have gone by when it did something to a
// DaemonSet's pods: each policy that can have counted, and what the rollout said.
type guidance struct {
	low, high int64
	policies  []*v1alpha1.RolloutPolicy
	// rollouts are the versions that it can have known, written those that it wrote
	// first after it decided: what it had in mind may be in them.
	rollouts, written []*v1alpha1.DaemonSetRollout
	// absent tells that it can have known of no rollout, free that it can have taken the DaemonSet for one that follows
	// no policy, ruled that it can have known of one that counts.
	absent, free, ruled bool
	// marks are those of the revisions that it can have taken for the newest.
	marks []string
}

// guide finds the guidance of a decision.
func (j *judge) guide(d decision) *guidance {
	g := &guidance{low: d.early, high: d.event, free: d.any(deletesNothing)}
	name := j.tracks[d.at.set].First().GetName()
	g.low = j.knownSince(g.low, slices.Concat(j.policies, j.rollouts[name]))
	for _, m := range lives.Moments(g.low, g.high, slices.Concat(j.policies, j.rollouts[name])) {
		j.look(g, d, name, m)
	}
	g.written = j.afterwards(name, g.high)
	observed := int64(0)
	if then, _ := j.tracks[d.at.set].At(d.early).(*appsv1.DaemonSet); then != nil {
		observed = then.Status.ObservedGeneration
	}
	for _, o := range j.tracks[d.at.set].Between(0, d.event) {
		if set := o.(*appsv1.DaemonSet); set.Generation >= observed {
			g.marks = append(g.marks, markOfSet(set))
		}
	}
	g.marks = j.withContents(g, revision.Named(&d.specs[0].Spec.Template.Spec))
	return g
}

// look adds what was so at a moment.
func (j *judge) look(g *guidance, d decision, name string, m int64) {
	set, _ := j.tracks[d.at.set].At(min(m, g.high)).(*appsv1.DaemonSet)
	if set == nil {
		set = d.specs[0]
	}
	r := j.rolloutAt(name, m)
	if r != nil && r.Labels[OwnerLabel] != string(d.at.set) {
		r = nil // of one that had the name before
	}
	if r == nil {
		g.absent = true
	} else if !slices.Contains(g.rollouts, r) {
		g.rollouts = append(g.rollouts, r)
	}
	p := j.policyAt(set, m)
	switch {
	case p != nil:
		g.ruled = true
		if !slices.Contains(g.policies, p) {
			g.policies = append(g.policies, p)
		}
	case r == nil, told.NothingUnderWay(&r.Status), told.LetGo(r), j.wasLetGo(set, r, m), j.tookBack(g, set, &r.Status):
		g.free = true
	}
}

// wasLetGo reports whether somebody lets the rollout's target go on without a policy, or did, and no policy counted
// since: a DaemonSet that has left its policy changes as without one, and nobody takes that back.
func (j *judge) wasLetGo(set *appsv1.DaemonSet, r *v1alpha1.DaemonSetRollout, m int64) bool {
	for _, v := range slices.Backward(j.tracks[r.UID].Versions) {
		switch {
		case v.From > m:
		case j.policyAt(set, v.From) != nil:
			return false
		case told.LetGo(v.Object.(*v1alpha1.DaemonSetRollout)):
			return true
		}
	}
	return false
}

// tookBack reports whether the authors' objects hold again what the stable revision has, which no status may say yet.
func (j *judge) tookBack(g *guidance, set *appsv1.DaemonSet, s *v1alpha1.DaemonSetRolloutStatus) bool {
	_, target := revision.Split(s.TargetRevision)
	template, id := revision.Split(s.StableRevision)
	span := lately.Span{Low: g.low, High: g.high, Targets: []revision.Held{j.values[target]}}
	return id != "" && j.markOfHash[template] == markOfSet(set) && span.Had(j.authors, j.values[id])
}

// knownSince is since when what the controller knew of some objects at a revision was
// so: it may have heard of older versions only, or of none.
func (j *judge) knownSince(revision int64, tracks []*track) int64 {
	if !j.Told {
		return revision
	}
	since := revision
	for _, t := range tracks {
		from := t.Versions[0].From
		if from > revision {
			continue
		}
		heard := from - 1 // of nothing
		for _, s := range j.sees[t.First().GetUID()] {
			if s.At <= revision {
				heard = max(heard, s.Version)
			}
		}
		if newest := t.NewestChange(revision); heard < newest {
			since = min(since, heard)
		}
	}
	return since
}

// policyAt is the policy that counts for the DaemonSet at a revision: of those that select it the oldest.
func (j *judge) policyAt(set *appsv1.DaemonSet, revision int64) *v1alpha1.RolloutPolicy {
	var list []*v1alpha1.RolloutPolicy
	for _, t := range j.policies {
		if p, _ := t.At(revision).(*v1alpha1.RolloutPolicy); p != nil {
			list = append(list, p)
		}
	}
	return waves.Counting(list, set)
}

func (j *judge) rolloutAt(name string, revision int64) *v1alpha1.DaemonSetRollout {
	for _, t := range j.rollouts[name] {
		if r, _ := t.At(revision).(*v1alpha1.DaemonSetRollout); r != nil {
			return r
		}
	}
	return nil
}

// afterwards are the versions of the rollout after a revision, up to the first that the controller wrote.
func (j *judge) afterwards(name string, revision int64) (out []*v1alpha1.DaemonSetRollout) {
	before := j.rolloutAt(name, revision)
	for _, t := range j.rollouts[name] {
		for _, v := range t.Versions {
			if v.From <= revision {
				continue
			}
			r := v.Object.(*v1alpha1.DaemonSetRollout)
			out = append(out, r)
			if r.Status.TargetRevision != "" && (before == nil || !told.Same(&before.Status, &r.Status)) {
				return out
			}
		}
	}
	return out
}

// sortPolicies keeps the tracks of a policy or a rollout.
func (j *judge) sortPolicies(t *track) {
	switch o := t.First().(type) {
	case *v1alpha1.RolloutPolicy:
		j.policies = append(j.policies, t)
	case *v1alpha1.DaemonSetRollout:
		j.rollouts[o.Name] = append(j.rollouts[o.Name], t)
	case *corev1.ConfigMap, *corev1.Secret:
		if revision.ByAuthor(o) {
			j.authors = append(j.authors, lifeOf(t))
		}
	case *appsv1.ControllerRevision:
		j.markOfHash[hashOf(o)] = revision.MarkOf(o)
	}
}

// concerned are the UIDs of what the guidance is about.
func (g *guidance) concerned(d decision, more ...types.UID) []types.UID {
	out := append([]types.UID{d.at.set}, more...)
	add := func(o metav1.Object) {
		if !slices.Contains(out, o.GetUID()) {
			out = append(out, o.GetUID())
		}
	}
	for _, p := range g.policies {
		add(p)
	}
	for _, r := range slices.Concat(g.rollouts, g.written) {
		add(r)
	}
	return out
}

// guidanceOf is nil where the decision surely followed no policy.
func (j *judge) guidanceOf(d decision) *guidance {
	if len(j.policies) == 0 {
		return nil
	}
	g := j.guide(d)
	if !g.ruled && (g.absent || g.free) {
		return nil
	}
	return g
}

// mixed reports whether the decision can have followed none.
func (g *guidance) mixed() bool { return g.free || g.absent }

// mayLose reports whether the pod can have been of another revision than its node is to
// have: it follows from none of what was known that it is the only one.
func (j *judge) mayLose(d decision, g *guidance, p *corev1.Pod) bool {
	marks := slices.Clone(g.marks)
	for _, r := range slices.Concat(g.rollouts, g.written) {
		marks = append(marks, j.whole(r.Status.StableRevision), j.whole(r.Status.TargetRevision))
	}
	return slices.ContainsFunc(marks, func(m string) bool { return m != "" && !has(p, m) && j.mayHave(d, g, m, "") })
}

// whole is the template of a revision and the ID of its content; "" if there was no such template.
func (j *judge) whole(of string) string {
	template, id := revision.Split(of)
	if j.markOfHash[template] == "" {
		return ""
	}
	return revision.Join(j.markOfHash[template], id)
}

// withContents are the revisions that can be the newest: each of its templates with each content that can have been
// known to be, and without, as the policies want it, or did: until there are copies the target is what it was before.
func (j *judge) withContents(g *guidance, named []revision.Ref) (out []string) {
	without := g.free || g.absent || !g.ruled ||
		slices.ContainsFunc(g.policies, func(p *v1alpha1.RolloutPolicy) bool { return !revision.WithContent(p) })
	span := lately.Span{Low: g.low, High: g.high}
	for _, r := range g.rollouts {
		_, id := revision.Split(r.Status.TargetRevision)
		span.Targets = append(span.Targets, j.values[id])
	}
	for _, mark := range g.marks {
		if without {
			out = append(out, mark)
		}
		for id, held := range j.values {
			taken := revision.TakenBy(g.policies, named, held) || slices.ContainsFunc(span.Targets, held.Alike)
			if taken && span.Had(j.authors, held) {
				out = append(out, revision.Join(mark, id))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
