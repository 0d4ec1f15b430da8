package fact

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod on its way out tells that it was ready when that was asked for, if it surely was.
func TestWasReady(t *testing.T) {
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		ready   corev1.ConditionStatus
		changed time.Time
		want    bool
	}{
		"ready still":          {corev1.ConditionTrue, asked.Add(-time.Hour), true},
		"ready until it ended": {corev1.ConditionFalse, asked.Add(3 * time.Second), true},
		"ready until then":     {corev1.ConditionFalse, asked, true},
		"not ready before":     {corev1.ConditionFalse, asked.Add(-time.Second), false},
		"nobody knows":         {"", asked, false},
	} {
		ends, grace := metav1.NewTime(asked.Add(30*time.Second)), int64(30)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &ends, DeletionGracePeriodSeconds: &grace}}
		if test.ready != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: test.ready,
				LastTransitionTime: metav1.NewTime(test.changed)}}
		}
		if got := OfPod(p, "logs").WasReady; got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPlacementReason(t *testing.T) {
	for message, want := range map[string]string{
		"0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. " +
			"preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod.": "Insufficient memory",
		"0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].": "Insufficient cpu, Insufficient memory",
		"0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity].":                                            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
		"0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.":                   "Insufficient cpu",
		"0/1 nodes are available: 1 node(s) had taint {a: b}, that the pod didn't tolerate.":                                     "node(s) had taint {a: b}, that the pod didn't tolerate",
		"the scheduler speaks another way": "the scheduler speaks another way",
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: message}}}}
		if got := OfPod(p, "logs").Unplaceable; got != want {
			t.Errorf("%s\ngives %q, want %q", message, got, want)
		}
		p.Spec.NodeName = "n1"
		if got := OfPod(p, "logs").Unplaceable; got != "" {
			t.Errorf("a pod that is bound cannot be placed: %q", got)
		}
	}
}
