package tainttoleration

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

func TestFilter(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: value, Effect: effect}}
	}
	tests := []struct {
		name        string
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		passes      bool
	}{
		{"no taint", nil, nil, true},
		{"NoSchedule", taint("k", "", "NoSchedule"), nil, false},
		{"NoExecute", taint("k", "", "NoExecute"), nil, false},
		{"PreferNoSchedule only advises", taint("k", "", "PreferNoSchedule"), nil, true},
		{"exists", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Key: "k", Operator: "Exists"}}, true},
		{"exists, other effect", taint("k", "v", "NoExecute"), []corev1.Toleration{{Key: "k", Operator: "Exists", Effect: "NoSchedule"}}, false},
		{"exists, every key", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Operator: "Exists"}}, true},
		{"equal", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Key: "k", Value: "v"}}, true},
		{"not equal", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Key: "k", Operator: "Equal", Value: "w"}}, false},
		{"second of two not tolerated", append(taint("k", "", "NoSchedule"), taint("l", "", "NoSchedule")...), []corev1.Toleration{{Key: "k", Operator: "Exists"}}, false},
		{"unknown operator", taint("k", "1", "NoSchedule"), []corev1.Toleration{{Key: "k", Operator: "Lt", Value: "2"}}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			check := Filter.Prepare(cache.NewPod(&corev1.Pod{Spec: corev1.PodSpec{Tolerations: test.tolerations}}), nil)
			verdict := check(&cache.Node{Object: &corev1.Node{Spec: corev1.NodeSpec{Taints: test.taints}}})
			if verdict.Passed() != test.passes {
				t.Errorf("verdict is %+v, want passed %v", verdict, test.passes)
			}
			if !test.passes && (!verdict.Hopeless || verdict.Reasons[0] != Reason) {
				t.Errorf("verdict is %+v, want the hopeless reason %q", verdict, Reason)
			}
		})
	}
}

func TestScorerPrefersFewerAdvisoryTaints(t *testing.T) {
	node := func(taints ...corev1.Taint) *cache.Node {
		return &cache.Node{Object: &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}}
	}
	a, b := corev1.Taint{Key: "a", Effect: "PreferNoSchedule"}, corev1.Taint{Key: "b", Effect: "PreferNoSchedule"}
	pod := cache.NewPod(&corev1.Pod{})
	if got, want := Scorer.Prepare(pod, []*cache.Node{node(a, b), node(), node(b)}, nil), []int64{0, 100, 50}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
	if got := Scorer.Prepare(pod, []*cache.Node{node(), node()}, nil); got != nil {
		t.Errorf("scores are %v without advisory taints, want none", got)
	}
}
