package podadmission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func TestRoomForMore(t *testing.T) {
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("4", "1Gi")}}
	sized := func(cpu, memory string) *corev1.Pod {
		p := boxPod()
		p.Spec.Containers[0].Resources.Requests = amounts(cpu, memory)
		return p
	}
	other := sized("2", "512Mi")
	for name, c := range map[string]struct {
		asked           *corev1.Pod
		reason, message string
	}{
		"as it was":         {sized("1", "256Mi"), "", ""},
		"what is left":      {sized("2", "512Mi"), "", ""},
		"more than is left": {sized("2500m", "256Mi"), "Deferred", "Node didn't have enough resource: cpu, requested: 2500, used: 2000, capacity: 4000"},
		"more than ever":    {sized("1", "2Gi"), "Infeasible", "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824"},
		"both":              {sized("3", "2Gi"), "Infeasible", "Node didn't have enough capacity: memory, requested: 2147483648, capacity: 1073741824"},
		"less":              {sized("500m", "1Mi"), "", ""},
	} {
		got := NoRoom(c.asked, sized("1", "256Mi"), node, []*corev1.Pod{other})
		if got.Reason != c.reason || got.Message != c.message {
			t.Errorf("%s: got %+v, want %s %q", name, got, c.reason, c.message)
		}
	}
	// A pod that asks for less is given that also where there is too little, as after a change of the node.
	if got := NoRoom(sized("500m", "1Mi"), sized("1", "256Mi"), node, []*corev1.Pod{sized("8", "4Gi")}); got.Reason != "" {
		t.Errorf("less, on a node that is too full: %+v", got)
	}
}
