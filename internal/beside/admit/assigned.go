package admit

import (
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// Settled returns the revision that every node is to have, and whether there is one: the policy need not be known then.
// It is "" if the rollout has not begun.
func Settled(s *v1alpha1.DaemonSetRolloutStatus) (string, bool) {
	switch {
	case s.TargetRevision == s.StableRevision, rolloutpolicy.HasFailed(s, s.TargetRevision):
		return s.StableRevision, true
	case s.TargetRevision == "":
		return "", true
	}
	return "", false
}

// Assigned returns the revision that a pod made now is to have, on a node of a step that has no daemon; "" if the
// rollout has not begun. It follows from objects alone: the rollout's status says how far the change is, because
// whoever leads it writes that before it takes a pod away.
//
// policy is the one that the rollout follows, or nil while it cannot be followed; nothing new begins then. Nor does it
// where the policy has no step any more that the rollout says has begun: whoever leads says soon which one has.
func Assigned(s *v1alpha1.DaemonSetRolloutStatus, policy *rolloutpolicy.Policy, at rolloutpolicy.Step) string {
	stable, target := s.StableRevision, s.TargetRevision
	one, settled := Settled(s)
	switch {
	case settled:
		// Where a new DaemonSet failed and goes nowhere back, its nodes are left without a daemon.
		return one
	case policy == nil:
		return stable
	case stable == "":
		return target
	}
	open, known := policy.StepNamed(s.Step)
	if known && at.Compare(open) <= 0 {
		return target
	}
	return stable
}
