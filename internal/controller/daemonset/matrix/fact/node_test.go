package fact

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever else is wrong with a node in maintenance is somebody's will, also that it does not answer.
func TestHealth(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	silent := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: at}
	drained := corev1.NodeCondition{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: "Kernel", LastTransitionTime: at}
	planned := corev1.NodeCondition{Type: corev1.NodeMaintenancePlanned, Status: corev1.ConditionTrue, LastTransitionTime: at}
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}
	for want, conditions := range map[Health][]corev1.NodeCondition{
		{}: {ready, planned},
		{Fault: "the node does not answer", Silent: true, Since: at.Time}:                            {silent, planned},
		{Fault: "in maintenance: Drained since 2026-03-01 12:00 UTC, says Kernel", Maintained: true}: {silent, drained},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: conditions}}
		want.Name = "n1"
		if got := HealthOf(n); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		told := want.Told(n, want.Fault)
		if told.Object != n || told.Fault != want.Fault || told.Silent != want.Silent || !told.Since.Equal(want.Since) ||
			told.Maintained != want.Maintained {
			t.Errorf("the course is told %+v of %+v", told, want)
		}
	}
}

// A recording of nodes that nobody works on is what it was before there was maintenance.
func TestHealthIsRecordedAsBefore(t *testing.T) {
	text, err := json.Marshal(Health{Name: "n1", Fault: "it is ill"})
	if err != nil || string(text) != `{"Name":"n1","Fault":"it is ill","Silent":false,"Since":"0001-01-01T00:00:00Z"}` {
		t.Errorf("%s, %v", text, err)
	}
}
