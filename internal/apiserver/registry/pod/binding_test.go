package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that is bound says since when, and of which generation that is; what else was known of it stays.
func TestBoundPodIsScheduled(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	gate := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, ObservedGeneration: 2}, gate}}}
	want := []corev1.PodCondition{gate, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: now}}
	if diff := cmp.Diff(want, scheduled(pod, now)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}
