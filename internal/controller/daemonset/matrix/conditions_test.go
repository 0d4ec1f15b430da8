package matrix

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestApplyKeepsWhatIsNotOurs(t *testing.T) {
	early, late := metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Hour))
	have := []appsv1.DaemonSetCondition{
		{Type: "Audited", Status: corev1.ConditionUnknown, Reason: "Somebody", Message: "else's", LastTransitionTime: early},
		{Type: ConditionProgressing, Status: corev1.ConditionTrue, Reason: RolloutInProgress, Message: "1 of 3", LastTransitionTime: early},
		{Type: ConditionAvailable, Status: corev1.ConditionFalse, Reason: NodesUnavailable, Message: "0 of 3", LastTransitionTime: early},
	}
	before := slices.Clone(have)
	status := appsv1.DaemonSetStatus{Conditions: have}
	Conditions{
		Available:   Condition{corev1.ConditionTrue, AllNodesAvailable, "3 of 3"},
		Progressing: Condition{corev1.ConditionTrue, DaemonSetUpdated, "3 of 3"},
	}.Apply(&status, late.Time)
	want := []appsv1.DaemonSetCondition{
		have[0],
		{Type: ConditionProgressing, Status: corev1.ConditionTrue, Reason: DaemonSetUpdated, Message: "3 of 3", LastTransitionTime: early},
		{Type: ConditionAvailable, Status: corev1.ConditionTrue, Reason: AllNodesAvailable, Message: "3 of 3", LastTransitionTime: late},
	}
	if !slices.Equal(status.Conditions, want) {
		t.Errorf("conditions are\n%+v, want\n%+v", status.Conditions, want)
	}
	if !slices.Equal(have, before) {
		t.Errorf("the list that is shared was changed to\n%+v", have)
	}
}

// A controller that starts anew does not take the standstill that it finds for
// progress, and has nothing to write.
func TestStandstillOutlivesARestart(t *testing.T) {
	m, pods := fleet(3)
	info := m.rows["logs"].info
	info.Generation, info.Revision = 2, "b"
	m.Step(info)
	pods[0].Revision, pods[0].Ready, pods[0].ReadySince = "b", false, time.Time{}
	m.Step(pods[0])
	m.Ready()
	m.Step(Now{Time: noon.Add(2 * time.Minute)})
	m.Ready()
	info.Reported, info.Conditions = m.rows["logs"].status(), m.rows["logs"].conditions()
	if got := info.Conditions.Progressing; got.Reason != BudgetExhausted || got.Status != corev1.ConditionFalse ||
		!strings.HasSuffix(got.Message, "rollout waits: 1 unavailable, 1 allowed: node-00000 (pod logs-0 is not ready)") {
		t.Fatalf("the rollout stands still and Progressing is %+v", got)
	}

	again := New(Config{})
	again.Step(Now{Time: noon.Add(3 * time.Minute)})
	for i := range pods {
		again.Step(fleetNode(i))
		again.Step(pods[i])
	}
	again.Step(info)
	if actions := again.Ready(); len(actions) > 0 {
		t.Errorf("after a restart it wants %s", actions)
	}
	if got := again.rows["logs"].conditions(); got != info.Conditions {
		t.Errorf("after a restart the conditions are\n%+v, want\n%+v", got, info.Conditions)
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
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}}}
		if got := ProjectPod(p, "logs").Unplaceable; got != want {
			t.Errorf("%s\ngives %q, want %q", message, got, want)
		}
		p.Spec.NodeName = "n1"
		if got := ProjectPod(p, "logs").Unplaceable; got != "" {
			t.Errorf("a pod that is bound cannot be placed: %q", got)
		}
	}
}
