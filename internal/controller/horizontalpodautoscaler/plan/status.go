package plan

import (
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stamp is a time as the API keeps it: in whole seconds.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t).Rfc3339Copy() }

func (d *decision) event(kind, reason, message string) {
	d.Events = append(slices.Clip(d.Events), Event{Type: kind, Reason: reason, Message: message})
}

// condition sets a condition; its time is when its status changed.
func (d *decision) condition(kind autoscalingv2.HorizontalPodAutoscalerConditionType, holds bool, reason,
	message string) {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	next := autoscalingv2.HorizontalPodAutoscalerCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: stamp(d.Now),
	}
	same := func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Type == kind }
	place := slices.IndexFunc(d.Status.Conditions, same)
	if place < 0 {
		d.Status.Conditions = append(slices.Clip(d.Status.Conditions), next)
		return
	}
	if before := d.Status.Conditions[place]; before.Status == status {
		next.LastTransitionTime = before.LastTransitionTime
	}
	d.Status.Conditions = slices.Clone(d.Status.Conditions)
	d.Status.Conditions[place] = next
}
