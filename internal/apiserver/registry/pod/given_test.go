package pod

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// A node does not say that its pods have more than they ever asked for, and what it may say stays as it is.
func TestNodeSaysWhatPodsHave(t *testing.T) {
	given := func(allocated, has corev1.ResourceList) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, AllocatedResources: allocated,
				Resources: &corev1.ResourceRequirements{Requests: has, Limits: amounts("cpu", "2", "memory", "2Gi")}}}
		}
	}
	small, asked, big := amounts("cpu", "500m", "memory", "512Mi"), amounts("cpu", "1", "memory", "1Gi"), amounts("cpu", "3", "memory", "3Gi")
	for name, c := range map[string]struct {
		before, says, want func(*corev1.Pod)
	}{
		"what it asks for":         {given(asked, asked), given(asked, asked), given(asked, asked)},
		"less, as it waits":        {given(small, small), given(small, small), given(small, small)},
		"more, from before":        {given(big, big), given(asked, big), given(asked, big)},
		"more than ever":           {given(asked, asked), given(big, big), given(asked, asked)},
		"more than ever, at first": {func(*corev1.Pod) {}, given(big, big), given(asked, asked)},
		"more than before": {given(big, big), given(amounts("cpu", "1", "memory", "9Gi"), amounts("cpu", "900", "memory", "1Gi")),
			given(amounts("cpu", "1", "memory", "3Gi"), amounts("cpu", "3", "memory", "1Gi"))},
		"less than nothing":          {given(asked, asked), given(amounts("cpu", "-5", "memory", "1Gi"), asked), given(amounts("memory", "1Gi"), asked)},
		"what it does not ask for":   {given(asked, asked), given(asked, amounts("cpu", "1", "memory", "1Gi", "example.com/gpu", "8")), given(asked, asked)},
		"nothing, as agents may say": {given(asked, asked), func(*corev1.Pod) {}, func(*corev1.Pod) {}},
	} {
		old := stored(sized)
		c.before(old)
		p, want := stored(sized), stored(sized)
		c.says(p)
		c.want(want)
		prepareStatusForUpdate(p, old)
		if !apiequality.Semantic.DeepEqual(p.Status.ContainerStatuses, want.Status.ContainerStatuses) {
			t.Errorf("%s: it is stored as %+v, want %+v", name, p.Status.ContainerStatuses, want.Status.ContainerStatuses)
		}
	}
	// What quotas and the scheduler make of it.
	honest, liar := stored(sized), stored(sized)
	given(big, big)(liar)
	liar.Status.ContainerStatuses[0].Resources.Limits = big
	prepareStatusForUpdate(liar, honest)
	if got, want := podfacts.Reserved(liar), podfacts.Requests(honest); !apiequality.Semantic.DeepEqual(got, want) {
		t.Errorf("a pod on a node that lies takes %v, want %v", got, want)
	}
	if limit := liar.Status.ContainerStatuses[0].Resources.Limits.Cpu(); limit.String() != "2" {
		t.Errorf("its limit is %s, want 2", limit)
	}
}

// What a node says of a container is compared with the one that a search through the pod finds.
func TestContainersByNameAreTheFirst(t *testing.T) {
	p := &corev1.Pod{}
	for i, name := range []string{"a", "b", "a"} {
		c := corev1.Container{Name: name, Image: fmt.Sprint("image", i)}
		p.Spec.Containers = append(p.Spec.Containers, c)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c, corev1.Container{Name: "i" + name})
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e" + name, Image: c.Image},
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses,
			corev1.ContainerStatus{Name: name}, corev1.ContainerStatus{Name: "i" + name})
		p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: "e" + name})
	}
	containers, statuses := containersByName(p), statusesByName(&p.Status)
	for _, name := range []string{"a", "b", "ia", "ib", "ea", "eb", "c"} {
		if got, want := containers[name], podfacts.Container(p, name); !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("container %s is %v, want %v", name, got, want)
		}
		if got, want := statuses[name], podfacts.ContainerStatus(&p.Status, name); got != want {
			t.Errorf("status of %s is %p, want %p", name, got, want)
		}
	}
}
