package admit

import (
	"fmt"
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// Assigned returns the hash of the revision that a pod made now is to have, on a node of a step that has no daemon; ""
// if the rollout has not begun. It follows from objects alone: the rollout's status says how far the change is, because
// whoever leads it writes that before it takes a pod away.
//
// policy is the one that the rollout follows, or nil while it cannot be followed; nothing new begins then.
func Assigned(s *v1alpha1.DaemonSetRolloutStatus, policy *rolloutpolicy.Policy, at rolloutpolicy.Step) (string, error) {
	stable, target := s.StableRevision, s.TargetRevision
	switch {
	case target == stable:
		return stable, nil
	case target == "":
		return "", nil
	case hasFailed(s, target) || policy == nil:
		// Where a new DaemonSet failed and goes nowhere back, its nodes are left without a daemon.
		return stable, nil
	case stable == "":
		return target, nil
	}
	open, known := policy.StepNamed(s.Step)
	switch {
	case !known:
		return "", fmt.Errorf("the policy has no step %q, which the rollout says has begun", s.Step)
	case at.Compare(open) <= 0:
		return target, nil
	}
	return stable, nil
}

// hasFailed reports whether a revision is not tried again by itself.
func hasFailed(s *v1alpha1.DaemonSetRolloutStatus, revision string) bool {
	return slices.Contains(s.EarlierFailures, revision) ||
		slices.ContainsFunc(s.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == revision })
}
