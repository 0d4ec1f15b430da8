// Package told reads what a rollout says; pure.
package told

import (
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
)

// LetGo reports whether somebody lets the rollout's target go on without a policy.
func LetGo(r *v1alpha1.DaemonSetRollout) bool {
	a := r.Spec.Approved
	return a != nil && a.Revision == r.Status.TargetRevision && a.Step == v1alpha1.WithoutPolicy
}

// Same reports whether two statuses tell of the same place in a rollout.
func Same(a, b *v1alpha1.DaemonSetRolloutStatus) bool {
	return a.StableRevision == b.StableRevision && a.TargetRevision == b.TargetRevision && a.Step == b.Step &&
		a.Phase == b.Phase && a.Message == b.Message
}

// WithoutSteps reports whether the rollout asks for none. Without a policy, when it is paused, it names none.
func WithoutSteps(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return s.Step == "" && s.Phase != v1alpha1.PhasePaused
}

// HasFailed reports whether the rollout says that a revision has failed.
func HasFailed(r *v1alpha1.DaemonSetRollout, hash string) bool {
	is := func(f v1alpha1.FailedRevision) bool { return f.Revision == hash }
	return slices.ContainsFunc(r.Status.FailedRevisions, is)
}

// FailedOn reports whether a node failed.
func FailedOn(s *v1alpha1.DaemonSetRolloutStatus, node string) bool {
	return s.Failures != nil && (s.Failures.More > 0 || slices.Contains(s.Failures.Nodes, node))
}
