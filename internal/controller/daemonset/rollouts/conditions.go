package rollouts

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/pinning"
)

// failed are the phases of a target that has failed.
var failed = []v1alpha1.Phase{v1alpha1.PhaseHalted, v1alpha1.PhaseRolledBack}

// conditions are those of a rollout, and in which phases each is true.
var conditions = []struct {
	name string
	in   []v1alpha1.Phase
}{
	{v1alpha1.RolloutComplete, []v1alpha1.Phase{v1alpha1.PhaseComplete}},
	{v1alpha1.RolloutWaitingForApproval, []v1alpha1.Phase{v1alpha1.PhaseWaitingForApproval}},
	{v1alpha1.RolloutWaiting, []v1alpha1.Phase{
		v1alpha1.PhaseWaitingForApproval, v1alpha1.PhaseOutsideWindow, v1alpha1.PhasePaused, v1alpha1.PhaseHalted,
	}},
	{v1alpha1.RolloutFailed, failed},
	{v1alpha1.RolloutReconciling, []v1alpha1.Phase{
		v1alpha1.PhaseProgressing, v1alpha1.PhaseSoaking, v1alpha1.PhaseWaitingForApproval, v1alpha1.PhaseOutsideWindow,
		v1alpha1.PhasePaused,
	}},
	{v1alpha1.RolloutStalled, failed},
}

// Conditions says in conditions what a status' phase says, for tools that wait. Those
// that were written before keep the time of their last change, and others' stay.
func Conditions(s *v1alpha1.DaemonSetRolloutStatus, before []metav1.Condition, now time.Time) []metav1.Condition {
	out := append([]metav1.Condition(nil), before...)
	for _, c := range conditions {
		status, reason := metav1.ConditionFalse, string(s.Phase)
		for _, phase := range c.in {
			if s.Phase == phase {
				status = metav1.ConditionTrue
			}
		}
		meta.SetStatusCondition(&out, metav1.Condition{
			Type: c.name, Status: status, Reason: reason, Message: s.Message,
			ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now),
		})
	}
	if s.Images == nil {
		meta.RemoveStatusCondition(&out, v1alpha1.RolloutImagesPinned)
		return out
	}
	pinned := imagesPinned(s)
	pinned.ObservedGeneration, pinned.LastTransitionTime = s.ObservedGeneration, metav1.NewTime(now)
	meta.SetStatusCondition(&out, pinned)
	return out
}

// imagesPinned says in a condition whether the target's images are pinned. Others may wait for those of the stable one.
func imagesPinned(s *v1alpha1.DaemonSetRolloutStatus) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.RolloutImagesPinned, Message: s.Images.Message}
	known := pinning.Of(s.Images, content.TemplateOf(s.TargetRevision)) != nil
	switch {
	case strings.Contains(c.Message, pinning.AsWritten):
		c.Status, c.Reason = metav1.ConditionFalse, "AsWritten"
	case c.Message == "", known:
		c.Status, c.Reason = metav1.ConditionTrue, "Pinned"
	default:
		c.Status, c.Reason = metav1.ConditionUnknown, "WaitingForFirstNode"
	}
	return c
}
