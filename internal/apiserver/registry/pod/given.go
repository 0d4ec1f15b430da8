package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// boundGiven takes what a node says that containers were given and have for at most what they ask for, or what it said
// before: quotas count it for the whole namespace, and a node that lies must not use up what belongs to pods of other
// nodes.
func boundGiven(p, old *corev1.Pod) {
	containers, statuses := containersByName(p), statusesByName(&old.Status)
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			s := &list[i]
			if s.AllocatedResources == nil && s.Resources == nil {
				continue
			}
			asked, was := containers[s.Name], statuses[s.Name]
			if asked == nil {
				continue // the sums leave it out, too
			}
			requests, limits := []corev1.ResourceList{asked.Resources.Requests}, []corev1.ResourceList{asked.Resources.Limits}
			if was != nil {
				requests = append(requests, was.AllocatedResources)
				if was.Resources != nil {
					requests, limits = append(requests, was.Resources.Requests), append(limits, was.Resources.Limits)
				}
			}
			s.AllocatedResources = bounded(s.AllocatedResources, requests)
			if s.Resources != nil {
				s.Resources = s.Resources.DeepCopy()
				s.Resources.Requests, s.Resources.Limits = bounded(s.Resources.Requests, requests), bounded(
					s.Resources.Limits, limits,
				)
			}
		}
	}
}

// containersByName has what podfacts.Container finds. A node may tell of tens of thousands.
func containersByName(p *corev1.Pod) map[string]*corev1.Container {
	out := make(map[string]*corev1.Container, len(p.Spec.Containers)+len(p.Spec.InitContainers))
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			putFirst(out, list[i].Name, &list[i])
		}
	}
	for i := range p.Spec.EphemeralContainers {
		c := podfacts.Ephemeral(&p.Spec.EphemeralContainers[i])
		putFirst(out, c.Name, c)
	}
	return out
}

// statusesByName has what podfacts.ContainerStatus finds.
func statusesByName(s *corev1.PodStatus) map[string]*corev1.ContainerStatus {
	out := make(map[string]*corev1.ContainerStatus, len(s.ContainerStatuses)+len(s.InitContainerStatuses))
	for _, list := range [][]corev1.ContainerStatus{
		s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			putFirst(out, list[i].Name, &list[i])
		}
	}
	return out
}

// putFirst keeps the first of several things of one name.
func putFirst[T any](into map[string]T, name string, thing T) {
	if _, ok := into[name]; !ok {
		into[name] = thing
	}
}

// bounded is the list with each amount no greater than the greatest of the others', and none that is negative.
func bounded(list corev1.ResourceList, by []corev1.ResourceList) corev1.ResourceList {
	if list == nil {
		return nil
	}
	out := make(corev1.ResourceList, len(list))
	for name, amount := range list {
		var most *resource.Quantity
		for _, other := range by {
			if q, ok := other[name]; ok && (most == nil || q.Cmp(*most) > 0) {
				most = &q
			}
		}
		switch {
		case most == nil || amount.Sign() < 0:
		case amount.Cmp(*most) > 0:
			out[name] = most.DeepCopy()
		default:
			out[name] = amount
		}
	}
	return out
}
