package pod

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func withReady(status corev1.ConditionStatus, since time.Time) *corev1.Pod {
	return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(since)},
	}}}
}

func TestIsAvailable(t *testing.T) {
	tests := []struct {
		name string
		pod  *corev1.Pod
		min  int32
		want bool
	}{
		{"no condition", &corev1.Pod{}, 0, false},
		{"not ready", withReady(corev1.ConditionFalse, noon.Add(-time.Hour)), 0, false},
		{"ready and no wait asked for", withReady(corev1.ConditionTrue, noon), 0, true},
		{"one second too young", withReady(corev1.ConditionTrue, noon.Add(-9*time.Second)), 10, false},
		{"exactly old enough", withReady(corev1.ConditionTrue, noon.Add(-10*time.Second)), 10, true},
		{"unknown since when", withReady(corev1.ConditionTrue, time.Time{}), 10, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := IsAvailable(tc.pod, tc.min, noon); got != tc.want {
				t.Errorf("IsAvailable = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTargetNode(t *testing.T) {
	meant := func(reqs ...corev1.NodeSelectorRequirement) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: reqs}},
			}}}
	}
	in := func(names ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: names}
	}
	tests := []struct {
		name string
		spec corev1.PodSpec
		want string
	}{
		{"nothing named", corev1.PodSpec{}, ""},
		{"bound", corev1.PodSpec{NodeName: "n1"}, "n1"},
		{"meant for one node", corev1.PodSpec{Affinity: meant(in("n2"))}, "n2"},
		{"bound wins over meant", corev1.PodSpec{NodeName: "n1", Affinity: meant(in("n2"))}, "n1"},
		{"two names are no target", corev1.PodSpec{Affinity: meant(in("n1", "n2"))}, ""},
		{"NotIn is no target", corev1.PodSpec{Affinity: meant(corev1.NodeSelectorRequirement{
			Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1"}})}, ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := TargetNode(&corev1.Pod{Spec: tc.spec}); got != tc.want {
				t.Errorf("TargetNode = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestIsTerminal(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]bool{
		corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false,
		corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		if got := IsTerminal(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}); got != want {
			t.Errorf("IsTerminal(%s) = %v, want %v", phase, got, want)
		}
	}
}

func TestGates(t *testing.T) {
	p := &corev1.Pod{}
	if got := Gates(p); got != "" {
		t.Errorf("a pod without gates has %q", got)
	}
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/a"}, {Name: "example.com/b"}}
	if got := Gates(p); got != "example.com/a, example.com/b" {
		t.Errorf("the gates are %q", got)
	}
}
