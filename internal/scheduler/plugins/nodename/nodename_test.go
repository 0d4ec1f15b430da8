package nodename

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

func TestFilter(t *testing.T) {
	if Filter.Prepare(cache.NewPod(&corev1.Pod{}), nil) != nil {
		t.Error("a pod that names no node is checked, want no check")
	}
	check := Filter.Prepare(cache.NewPod(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}), nil)
	if verdict := check(&cache.Node{Name: "a"}); !verdict.Passed() {
		t.Errorf("the named node fails: %v", verdict)
	}
	if verdict := check(&cache.Node{Name: "b"}); !slices.Equal(verdict.Reasons, []string{Reason}) || !verdict.Hopeless {
		t.Errorf("another node gives %+v, want the hopeless reason %q", verdict, Reason)
	}
}
