package history

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/wants"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// began reports whether a rollout's status says that the step has begun, with all those
// before it that surely have nodes.
func (j *judge) began(s *v1alpha1.DaemonSetRolloutStatus, p *v1alpha1.RolloutPolicy, at waves.Stage, d decision) bool {
	if first := (waves.Stage{}); at == first && len(p.Spec.Waves) == 0 || at == first && p.Spec.Waves[0].Each == "" {
		return true
	}
	var begun []string
	for i := range s.Steps {
		if begun = append(begun, s.Steps[i].Name); s.Steps[i].Name == s.Step {
			break
		}
	}
	if s.Step == "" || !slices.Contains(begun, s.Step) || !at.IsAmong(p, begun) {
		return false
	}
	return j.earlierBegan(begun, p, at, d)
}

// earlierBegan reports whether all stages before one that surely have nodes are among those that have begun.
func (j *judge) earlierBegan(begun []string, p *v1alpha1.RolloutPolicy, at waves.Stage, d decision) bool {
	for name := range j.nodes {
		n := j.steady(name, d)
		if n == nil {
			continue
		}
		if stages := waves.Of(p, n); len(stages) == 1 && stages[0].Before(at) && !stages[0].IsAmong(p, begun) && stages[0] != (waves.Stage{}) {
			return false
		}
	}
	return true
}

// steady is the node of a name, if it was there and for the DaemonSet all the while.
func (j *judge) steady(name string, d decision) *corev1.Node {
	at := d
	at.at.node = name
	if worst, _ := j.fits(at, d.early-lag); worst != wants.ShouldRun {
		return nil
	}
	for _, t := range j.nodes[name] {
		if n, _ := t.At(d.event).(*corev1.Node); n != nil && t.At(d.early-lag) != nil {
			return n
		}
	}
	return nil
}

// stepped judges a status that says that a step has begun.
func (j *judge) stepped(e *Event, r *v1alpha1.DaemonSetRollout) {
	before, _ := j.tracks[r.UID].At(e.Revision - 1).(*v1alpha1.DaemonSetRollout)
	if before == nil || before.Status.Step == r.Status.Step || before.Status.TargetRevision != r.Status.TargetRevision || r.Status.Step == "" || before.Status.Step == "" {
		return
	}
	found := j.policiesAround(e.Revision)
	names := []string{}
	for i := range r.Status.Steps {
		names = append(names, r.Status.Steps[i].Name)
	}
	from, to := slices.Index(names, before.Status.Step), slices.Index(names, r.Status.Step)
	if from < 0 || to <= from {
		return // another policy
	}
	j.soaked(e, before, r, names[from:to], found)
	for _, name := range names[from:to] {
		if !slices.ContainsFunc(found, func(p *v1alpha1.RolloutPolicy) bool { return !waves.Asks(p, name) }) && !j.wasApproved(r, name, names, e.Revision) {
			j.report(Early, e.Revision, []types.UID{r.UID}, "rollout %s went from step %s to %s, and nobody had approved step %s", r.Name, before.Status.Step, r.Status.Step, name)
		}
	}
}

// policiesAround lists what the policies may have been for who decided shortly before a revision.
func (j *judge) policiesAround(revision int64) (found []*v1alpha1.RolloutPolicy) {
	for _, m := range lives.Moments(j.knownSince(revision-lag, j.policies), revision, j.policies) {
		for _, t := range j.policies {
			if p, _ := t.At(m).(*v1alpha1.RolloutPolicy); p != nil && !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// wasApproved reports whether somebody approved the step of the change, or one that comes after it.
func (j *judge) wasApproved(r *v1alpha1.DaemonSetRollout, step string, names []string, revision int64) bool {
	for _, t := range j.rollouts[r.Name] {
		for _, o := range t.Between(0, revision) {
			a := o.(*v1alpha1.DaemonSetRollout).Spec.Approved
			if a != nil && a.Revision == r.Status.TargetRevision && a.Change == r.Status.Change && (a.Step == v1alpha1.AllSteps || slices.Index(names, a.Step) >= slices.Index(names, step)) {
				return true
			}
		}
	}
	return false
}
