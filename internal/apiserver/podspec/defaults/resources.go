package defaults

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// setPodResourceDefaults completes resources given for the pod as a whole:
// limits of huge pages come from the containers, and requests from the
// containers or else from the pod's limits.
func setPodResourceDefaults(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Limits)+len(r.Requests) == 0 {
		return
	}
	pod := &corev1.Pod{Spec: *spec}
	limits := resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	for name, limit := range limits {
		if _, requested := r.Requests[name]; !requested && IsHugePages(name) &&
			resourcehelper.IsSupportedPodLevelResource(name) {
			addMissing(&r.Limits, name, limit)
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	requests := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for name, request := range requests {
		if resourcehelper.IsSupportedPodLevelResource(name) && MayOvercommit(name) {
			addMissing(&r.Requests, name, request)
		}
	}
	for name, limit := range r.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			addMissing(&r.Requests, name, limit)
		}
	}
}

// IsHugePages reports whether a resource is huge pages of some size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsNative reports resources that Kubernetes itself defines.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// MayOvercommit reports resources whose limit may exceed the request.
func MayOvercommit(name corev1.ResourceName) bool { return IsNative(name) && !IsHugePages(name) }

func addMissing(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if _, ok := (*list)[name]; ok {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity.DeepCopy()
}
