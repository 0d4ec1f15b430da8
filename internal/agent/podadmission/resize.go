package podadmission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/agent/podworker"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// NoRoom says why a pod cannot have the CPU and memory that it asks for beside others.
func NoRoom(asked, given *corev1.Pod, node *corev1.Node, others []*corev1.Pod) podworker.Pending {
	want, has := podfacts.Requests(asked), podfacts.Requests(given)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		more, before, limit := want[name], has[name], node.Status.Allocatable[name]
		if more.Cmp(before) > 0 && more.Cmp(limit) > 0 {
			return podworker.Pending{Reason: corev1.PodReasonInfeasible, Message: fmt.Sprintf(
				"Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, amount(name, more), amount(name, limit))}
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		more, before, limit := want[name], has[name], node.Status.Allocatable[name]
		if more.Cmp(before) <= 0 {
			continue
		}
		var used resource.Quantity
		for _, other := range others {
			used.Add(podfacts.Reserved(other)[name])
		}
		left := limit.DeepCopy()
		left.Sub(used)
		if more.Cmp(left) > 0 {
			return podworker.Pending{Reason: corev1.PodReasonDeferred, Message: fmt.Sprintf(
				"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, amount(name, more),
				amount(name, used), amount(name, limit))}
		}
	}
	return podworker.Pending{}
}

// SameSize reports whether the containers of both pods ask for the same CPU and memory.
func SameSize(a, b *corev1.Pod) bool {
	theirs := podfacts.Containers(b)
	for i, c := range podfacts.Containers(a) {
		if i < len(theirs) && !podfacts.SameCompute(&c.Resources, &theirs[i].Resources) {
			return false
		}
	}
	return true
}

// WithSize is the pod with the containers' resources of another of its versions.
func WithSize(pod, of *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	for _, lists := range [][2][]corev1.Container{
		{out.Spec.Containers, of.Spec.Containers},
		{out.Spec.InitContainers, of.Spec.InitContainers},
	} {
		for i := range lists[0] {
			if i < len(lists[1]) {
				lists[0][i].Resources = lists[1][i].Resources
			}
		}
	}
	return out
}

// AsReported is the pod with the resources that the node last reported to have given it: those of before a restart of
// the agent.
func AsReported(pod *corev1.Pod) *corev1.Pod {
	if !podfacts.Resizing(pod) {
		return pod
	}
	out := pod.DeepCopy()
	for _, list := range [][]corev1.Container{out.Spec.Containers, out.Spec.InitContainers} {
		for i := range list {
			if s := podfacts.ContainerStatus(&pod.Status, list[i].Name); s != nil && s.AllocatedResources != nil {
				list[i].Resources.Requests = s.AllocatedResources
				if s.Resources != nil {
					list[i].Resources.Limits = s.Resources.Limits
				}
			}
		}
	}
	return out
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
