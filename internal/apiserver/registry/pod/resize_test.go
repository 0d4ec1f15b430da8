package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func sized(p *corev1.Pod) {
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts("cpu", "1", "memory", "1Gi"), Limits: amounts("cpu", "2", "memory", "2Gi")}
	p.Spec.InitContainers = []corev1.Container{
		{Name: "side", Image: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "1")}},
		{Name: "first", Image: "i", Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "1")}},
	}
}

func TestResize(t *testing.T) {
	main := func(p *corev1.Pod) *corev1.ResourceRequirements { return &p.Spec.Containers[0].Resources }
	part := Resize()
	for name, c := range map[string]struct {
		old  func(*corev1.Pod)
		now  func(*corev1.Pod)
		want string
	}{
		"more":      {sized, func(p *corev1.Pod) { main(p).Limits = amounts("cpu", "3", "memory", "3Gi") }, ""},
		"less":      {sized, func(p *corev1.Pod) { main(p).Requests = amounts("cpu", "1m", "memory", "1Mi") }, ""},
		"a sidecar": {sized, func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources.Requests = amounts("cpu", "2") }, ""},
		"an init container": {sized, func(p *corev1.Pod) { p.Spec.InitContainers[1].Resources.Requests = amounts("cpu", "2") },
			"spec.initContainers[1].resources: Forbidden: resources for non-sidecar init containers are immutable"},
		"a request above its limit": {sized, func(p *corev1.Pod) { main(p).Requests = amounts("cpu", "4", "memory", "1Gi") }, "must be less than or equal to cpu limit of 2"},
		"a request taken away": {sized, func(p *corev1.Pod) { p.Spec.InitContainers[0].Resources.Requests = nil },
			"spec.initContainers[0].resources: Forbidden: resource requests cannot be removed"},
		"a limit taken away": {sized, func(p *corev1.Pod) { main(p).Limits = amounts("cpu", "2") }, "spec.containers[0].resources: Forbidden: resource limits cannot be removed"},
		"another class": {sized, func(p *corev1.Pod) {
			p.Spec.InitContainers[0].Resources.Limits, p.Spec.InitContainers[0].Resources.Requests = amounts("cpu", "1", "memory", "1"), amounts("cpu", "1", "memory", "1")
			p.Spec.InitContainers[1].Resources = p.Spec.InitContainers[0].Resources
			main(p).Requests = amounts("cpu", "2", "memory", "2Gi")
		}, "Pod QOS Class may not change as a result of resizing"},
		"disk": {sized, func(p *corev1.Pod) { main(p).Limits = amounts("cpu", "2", "memory", "2Gi", "ephemeral-storage", "1Gi") },
			"spec: Forbidden: only cpu and memory resources are mutable"},
		"the policy": {sized, func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: corev1.RestartContainer}}
		}, "spec: Forbidden: only cpu and memory resources are mutable"},
		"another name": {sized, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "other" }, "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"},
		"another container": {sized, func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Image: "i"})
		}, "spec.containers: Forbidden: containers may not be added or removed on resize"},
		"a static pod":   {func(p *corev1.Pod) { sized(p); p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, func(*corev1.Pod) {}, "static pods cannot be resized"},
		"another system": {func(p *corev1.Pod) { sized(p); p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, func(*corev1.Pod) {}, "windows pods cannot be resized"},
	} {
		old := stored(c.old)
		p := old.DeepCopy()
		c.now(p)
		SetDefaults(p)
		part.Keep(p, old)
		errs := part.Validate(p, old)
		if (len(errs) == 0) != (c.want == "") || c.want != "" && !strings.Contains(errs.ToAggregate().Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, errs, c.want)
		}
	}
	running := stored(sized)
	running.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if errs := part.Validate(running.DeepCopy(), running); len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), "Pod running on node without support for resize") {
		t.Errorf("a node that says nothing of resources: %v", errs)
	}
}

// What the subresource is not about stays, whatever is sent; the pod itself does not let its resources change.
func TestResizeAlone(t *testing.T) {
	old := stored(sized)
	p := old.DeepCopy()
	p.Spec.Containers[0].Image, p.Spec.NodeName = "evil", "other"
	p.Spec.Containers[0].Resources.Limits = amounts("cpu", "3", "memory", "3Gi")
	Resize().Keep(p, old)
	if p.Spec.Containers[0].Image != "i:1" || p.Spec.NodeName != "n1" || p.Spec.Containers[0].Resources.Limits.Cpu().String() != "3" {
		t.Errorf("the specification is %+v", p.Spec)
	}
	if errs := ValidateUpdate(p, old); len(errs) == 0 {
		t.Error("an update of the pod itself changed its resources")
	}
}
