package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFault(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	condition := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: reason, LastTransitionTime: at}
	}
	well := condition(corev1.NodeReady, corev1.ConditionTrue, "")
	for want, n := range map[string]*corev1.Node{
		"":                                 {Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{well, condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "")}}},
		"the node has not been ready yet":  {},
		"the node does not answer":         {Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionUnknown, "NodeStatusUnknown")}}},
		"the node is not ready: NoNetwork": {Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse, "NoNetwork")}}},
		"the node is short of disk":        {Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{well, condition(corev1.NodeDiskPressure, corev1.ConditionTrue, "")}}},
		"the node is cordoned":             {Spec: corev1.NodeSpec{Unschedulable: true}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{well}}},
		"the node is being deleted":        {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &at}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{well}}},
	} {
		why, silent, since := Fault(n)
		if why != want || silent != (want == "the node does not answer") || (silent || n.DeletionTimestamp != nil) && !since.Equal(at.Time) {
			t.Errorf("the fault is %q, silent %v since %s, want %q", why, silent, since, want)
		}
	}
}
