// Package remedy does to a rollout that stands still what its status asks people for; pure.
package remedy

import (
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/approval"
)

// Apply changes what the rollout asks for, and says what was done; "" if it asks for nothing.
func Apply(r *v1alpha1.DaemonSetRollout) string {
	switch phase := r.Status.Phase; {
	case r.Spec.Paused:
		r.Spec.Paused = false
		return "resume"
	case phase == v1alpha1.PhaseHalted, phase == v1alpha1.PhaseRolledBack, wayBackIsLost(r):
		Retry(r)
		return "retry"
	case strings.Contains(r.Status.Message, "or retry it and approve step "+v1alpha1.WithoutPolicy):
		Retry(r)
		r.Spec.Approved = Approval(r, v1alpha1.WithoutPolicy)
		return "retry and approve"
	case phase == v1alpha1.PhaseWaitingForApproval, phase == v1alpha1.PhasePaused && !approved(r, missing(r)):
		r.Spec.Approved = Approval(r, missing(r))
		return "approve"
	}
	return ""
}

// Retry asks for one more try of the target.
func Retry(r *v1alpha1.DaemonSetRollout) {
	count := int32(1)
	if was := r.Spec.Retry; was != nil && was.Revision == r.Status.TargetRevision {
		count += was.Count
	}
	for _, f := range r.Status.FailedRevisions {
		if f.Revision == r.Status.TargetRevision {
			count = max(count, f.Retries+1)
		}
	}
	r.Spec.Retry = &v1alpha1.Retry{Revision: r.Status.TargetRevision, Digest: r.Status.TargetDigest, Count: count}
	r.Spec.Abort = nil
}

// NeedsRoom reports whether nodes that lost their daemons use up the limit, and are to have a revision that
// somebody deleted until their step begins.
func NeedsRoom(r *v1alpha1.DaemonSetRollout) bool {
	return strings.Contains(r.Status.Message, "and none can be made: revision ")
}

// wayBackIsLost reports whether the nodes are to return to a revision that somebody deleted.
func wayBackIsLost(r *v1alpha1.DaemonSetRollout) bool {
	return r.Status.Phase == v1alpha1.PhasePaused && strings.HasPrefix(r.Status.Message, "nothing goes back to revision ")
}

// missing is the step whose approval lets a rollout go on.
func missing(r *v1alpha1.DaemonSetRollout) string {
	if strings.Contains(r.Status.Message, v1alpha1.WithoutPolicy) {
		return v1alpha1.WithoutPolicy
	}
	return v1alpha1.AllSteps
}

// Approval approves a step of the change that is under way, or asked for.
func Approval(r *v1alpha1.DaemonSetRollout, step string) *v1alpha1.StepApproval {
	return &v1alpha1.StepApproval{
		Revision: r.Status.TargetRevision, Digest: r.Status.TargetDigest, Step: step, Change: approval.Due(r),
	}
}

func approved(r *v1alpha1.DaemonSetRollout, step string) bool {
	a := r.Spec.Approved
	return a != nil && a.Revision == r.Status.TargetRevision && a.Step == step && a.Change == r.Status.Change
}
