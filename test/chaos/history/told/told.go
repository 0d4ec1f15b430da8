// Package told reads what a rollout says; pure.
package told

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// NothingUnderWay reports whether the target is the stable revision, or no node was to have it: what has run nowhere is
// not stable.
func NothingUnderWay(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return s.StableRevision == s.TargetRevision || s.StableRevision == "" && s.Phase == v1alpha1.PhaseComplete
}

// LetGo reports whether somebody lets the change under way go on without a policy, or the retry that is asked for.
func LetGo(r *v1alpha1.DaemonSetRollout) bool {
	a := r.Spec.Approved
	return a != nil && a.Revision == r.Status.TargetRevision && a.Change >= r.Status.Change &&
		a.Step == v1alpha1.WithoutPolicy
}

// Change is the number of the change of the first of some versions of a rollout; 0 if there is none.
func Change(of []metav1.Object) int64 {
	if len(of) == 0 {
		return 0
	}
	return of[0].(*v1alpha1.DaemonSetRollout).Status.Change
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

// Retried reports whether somebody asked for another try of the target in the version itself.
func Retried(r *v1alpha1.DaemonSetRollout) bool {
	try := r.Spec.Retry
	return try != nil && slices.ContainsFunc(r.Status.FailedRevisions, func(f v1alpha1.FailedRevision) bool {
		return f.Revision == try.Revision && try.Count > f.Retries
	})
}
