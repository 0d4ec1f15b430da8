package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Requests is what the pod takes of a node: what it asks for as a whole, else the sum of its containers and sidecars, or more if
// an init container needs more; and its overhead.
func Requests(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}

// Limit is how much of the resource all containers together may use. Without a limit of the pod as a whole it is bounded only if
// every container is.
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

// ContainerLimit is how much of the resource the container may use: its own limit, else the one of the pod as a whole; zero if there
// is none.
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
