package fact

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestApplyKeepsWhatIsNotOurs(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	early, late := metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Hour))
	have := []appsv1.DaemonSetCondition{
		{Type: "Audited", Status: corev1.ConditionUnknown, Reason: "Somebody", Message: "else's",
			LastTransitionTime: early},
		{Type: ConditionProgressing, Status: corev1.ConditionTrue, Reason: RolloutInProgress, Message: "1 of 3",
			LastTransitionTime: early},
		{Type: ConditionAvailable, Status: corev1.ConditionFalse, Reason: NodesUnavailable, Message: "0 of 3",
			LastTransitionTime: early},
	}
	before := slices.Clone(have)
	status := appsv1.DaemonSetStatus{Conditions: have}
	Conditions{
		Available:   Condition{Status: corev1.ConditionTrue, Reason: AllNodesAvailable, Message: "3 of 3"},
		Progressing: Condition{Status: corev1.ConditionTrue, Reason: DaemonSetUpdated, Message: "3 of 3"},
	}.Apply(&status, late.Time)
	want := []appsv1.DaemonSetCondition{
		have[0],
		{Type: ConditionProgressing, Status: corev1.ConditionTrue, Reason: DaemonSetUpdated, Message: "3 of 3",
			LastTransitionTime: early},
		{Type: ConditionAvailable, Status: corev1.ConditionTrue, Reason: AllNodesAvailable, Message: "3 of 3",
			LastTransitionTime: late},
	}
	if !slices.Equal(status.Conditions, want) {
		t.Errorf("conditions are\n%+v, want\n%+v", status.Conditions, want)
	}
	if !slices.Equal(have, before) {
		t.Errorf("the list that is shared was changed to\n%+v", have)
	}
}
