package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOS is how well a pod is protected from others that use too much: Guaranteed
// if every container's limits equal its requests, BestEffort if nothing is
// asked for, Burstable otherwise.
func QOS(p *corev1.Pod) corev1.PodQOSClass {
	if r := p.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return qosOf([]corev1.ResourceRequirements{*r})
	}
	var all []corev1.ResourceRequirements
	for _, c := range p.Spec.InitContainers {
		all = append(all, c.Resources)
	}
	for _, c := range p.Spec.Containers {
		all = append(all, c.Resources)
	}
	return qosOf(all)
}

func qosOf(all []corev1.ResourceRequirements) corev1.PodQOSClass {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	everyoneLimited := true
	for _, r := range all {
		addCompute(requests, r.Requests)
		everyoneLimited = addCompute(limits, r.Limits) == 2 && everyoneLimited
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	if !everyoneLimited || len(requests) != len(limits) {
		return corev1.PodQOSBurstable
	}
	for name, request := range requests {
		if limit, ok := limits[name]; !ok || limit.Cmp(request) != 0 {
			return corev1.PodQOSBurstable
		}
	}
	return corev1.PodQOSGuaranteed
}

// addCompute adds the cpu and memory of list to sum and says how many of the two it has.
func addCompute(sum, list corev1.ResourceList) int {
	found := 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		amount, ok := list[name]
		if !ok || amount.Cmp(resource.Quantity{}) <= 0 {
			continue
		}
		found++
		total := sum[name]
		total.Add(amount)
		sum[name] = total
	}
	return found
}
