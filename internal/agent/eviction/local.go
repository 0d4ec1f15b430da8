package eviction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	helpers "k8s.io/component-helpers/resource"
)

// Limited says whether the pod limits what it may have on disk, so that it must be measured.
func Limited(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if limit(&pod.Spec.Volumes[i]) > 0 {
			return true
		}
	}
	return podLimit(pod) > 0
}

// limit is the limit of an emptyDir on disk in bytes, 0 for none. The kernel keeps the limit of those in memory.
func limit(v *corev1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault || v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// podLimit is what the pod may have in all, 0 if no container has a limit. Sidecars count beside the containers.
func podLimit(pod *corev1.Pod) int64 {
	limits := helpers.PodLimits(pod, helpers.PodResourcesOptions{ExcludeOverhead: true})
	return quantity(limits, corev1.ResourceEphemeralStorage)
}

// Exceeded says which of its own limits on the disk the pod is above; empty if none.
func Exceeded(u *Usage) string {
	if u.Unmeasured != "" && Limited(u.Pod) {
		return fmt.Sprintf("Usage of %s cannot be measured against its limit: folders are nested too deep. ", u.Unmeasured)
	}
	for i := range u.Pod.Spec.Volumes {
		v := &u.Pod.Spec.Volumes[i]
		if l := limit(v); l > 0 && u.Volumes[v.Name] > l {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	if l := podLimit(u.Pod); l > 0 && u.Disk > l {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", bytes(l))
	}
	for i := range u.Pod.Spec.Containers {
		c := &u.Pod.Spec.Containers[i]
		if l := quantity(c.Resources.Limits, corev1.ResourceEphemeralStorage); l > 0 && u.Containers[c.Name].Disk > l {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, bytes(l))
		}
	}
	return ""
}
