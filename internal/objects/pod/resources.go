package pod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Requests is what the pod takes of a node: what it asks for as a whole, else the sum of its containers and sidecars,
// or more if an init container needs more; and its overhead.
func Requests(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// Reserved is what the pod takes of its node while that changes: the greatest of what it asks for, what the node gave
// it, and what its containers have.
func Reserved(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true})
}

// Resizing says whether a container of the pod has, or was given, other CPU or memory than it asks for.
func Resizing(p *corev1.Pod) bool {
	for _, c := range Containers(p) {
		s := ContainerStatus(&p.Status, c.Name)
		if s == nil || s.AllocatedResources == nil {
			continue
		}
		if !sameCompute(s.AllocatedResources, c.Resources.Requests) ||
			s.Resources != nil && !SameCompute(s.Resources, &c.Resources) {
			return true
		}
	}
	return false
}

// SameCompute says whether both ask for the same CPU and memory.
func SameCompute(a, b *corev1.ResourceRequirements) bool {
	return sameCompute(a.Requests, b.Requests) && sameCompute(a.Limits, b.Limits)
}

func sameCompute(a, b corev1.ResourceList) bool {
	return a.Cpu().Cmp(*b.Cpu()) == 0 && a.Memory().Cmp(*b.Memory()) == 0
}

// WithCompute returns the list with the CPU and memory of another. It shares no map with either.
func WithCompute(list, of corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, list)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(out, name)
		if amount, ok := of[name]; ok {
			out[name] = amount
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Limit is how much of the resource all containers together may use. Without a limit of the pod as a whole it is
// bounded only if every container is.
func Limit(p *corev1.Pod, name corev1.ResourceName) (limit resource.Quantity, bounded bool) {
	whole := wholeLimit(p, name)
	bounded = !whole.IsZero()
	if !bounded {
		bounded = len(p.Spec.Containers) > 0
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				own := list[i].Resources.Limits[name]
				bounded = bounded && !own.IsZero()
			}
		}
	}
	if !bounded {
		return resource.Quantity{}, false
	}
	return resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})[name], true
}

// ContainerLimit is how much of the resource the container may use: its own limit, else the one of the pod as a whole;
// zero if there is none.
func ContainerLimit(p *corev1.Pod, c *corev1.Container, name corev1.ResourceName) resource.Quantity {
	if own := c.Resources.Limits[name]; !own.IsZero() {
		return own
	}
	return wholeLimit(p, name)
}

func wholeLimit(p *corev1.Pod, name corev1.ResourceName) resource.Quantity {
	if p.Spec.Resources == nil {
		return resource.Quantity{}
	}
	return p.Spec.Resources.Limits[name]
}

// IsSidecar says whether an init container runs beside the others until the end.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
