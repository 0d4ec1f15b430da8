package fit

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod that is being resized takes the most of what it asks for, was given, and has; one whose wish cannot be met,
// what it has.
func TestResizingPodTakesTheMost(t *testing.T) {
	cpu := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(text)}
	}
	pod := func(asks, given, has, pending string) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
			Resources: corev1.ResourceRequirements{Requests: cpu(asks)}}}}}
		p.Generation = 1
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: cpu(given),
			Resources: &corev1.ResourceRequirements{Requests: cpu(has)}}}
		if pending != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
				Reason: pending}}
		}
		return p
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want int64
	}{
		"has what it asks for":   {pod("1", "1", "1", ""), 1000},
		"waits for more":         {pod("2", "1", "1", corev1.PodReasonDeferred), 2000},
		"asks for too much":      {pod("9", "1", "1", corev1.PodReasonInfeasible), 1000},
		"is about to have less":  {pod("1", "1", "3", ""), 3000},
		"was given more already": {pod("2", "2", "1", ""), 2000},
	} {
		if got := NewPod(c.pod).Requests.MilliCPU; got != c.want {
			t.Errorf("%s: takes %d, want %d", name, got, c.want)
		}
	}
	if before, after := pod("1", "1", "3", ""), pod("1", "1", "1", ""); SamePod(before, after) ||
		!SamePod(after, after) {
		t.Error("what changed with its status alone is not noticed")
	}
}
