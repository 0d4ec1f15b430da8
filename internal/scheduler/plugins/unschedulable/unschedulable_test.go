package unschedulable

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

func TestFilter(t *testing.T) {
	node := func(cordoned bool) *cache.Node {
		return &cache.Node{Object: &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: cordoned}}}
	}
	check := Filter.Prepare(cache.NewPod(&corev1.Pod{}), nil)
	if verdict := check(node(false)); !verdict.Passed() {
		t.Errorf("a node in use fails: %v", verdict)
	}
	if verdict := check(node(true)); verdict.Passed() || verdict.Reasons[0] != Reason || !verdict.Hopeless {
		t.Errorf("a cordoned node gives %+v, want the hopeless reason %q", verdict, Reason)
	}
	daemon := corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: "Exists", Effect: "NoSchedule"}}}
	if Filter.Prepare(cache.NewPod(&corev1.Pod{Spec: daemon}), nil) != nil {
		t.Error("a pod that tolerates the cordon is checked, want no check")
	}
}
