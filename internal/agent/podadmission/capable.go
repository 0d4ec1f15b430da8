package podadmission

import (
	"fmt"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// incapable says why the node cannot run the pod as it wants to be run, nil if it can. A node of nil is one that
// nothing is known of yet.
func incapable(pod *corev1.Pod, node *corev1.Node, appArmor bool) *Refusal {
	const rejected = "Pod was rejected: "
	if os, ok := pod.Labels[corev1.LabelOSStable]; ok && os != runtime.GOOS {
		return &Refusal{"PodOSSelectorNodeLabelDoesNotMatch",
			rejected + "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != runtime.GOOS {
		return &Refusal{"PodOSNotSupported", rejected + "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if strictGroups(pod) && node != nil && !canBeStrict(node) {
		return &Refusal{"SupplementalGroupsPolicyNotSupported", rejected + fmt.Sprintf(
			"SupplementalGroupsPolicy=%s is not supported in this node", corev1.SupplementalGroupsPolicyStrict)}
	}
	if wantsAppArmor(pod) && !appArmor {
		return &Refusal{"AppArmor", rejected + "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	return nil
}

func strictGroups(pod *corev1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.SupplementalGroupsPolicy != nil &&
		*sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict
}

func canBeStrict(node *corev1.Node) bool {
	f := node.Status.Features
	return f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy
}

// wantsAppArmor reports whether the pod or a container of it is to be confined by AppArmor.
func wantsAppArmor(pod *corev1.Pod) bool {
	confined := func(p *corev1.AppArmorProfile) bool {
		return p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if sc := pod.Spec.SecurityContext; sc != nil && confined(sc.AppArmorProfile) {
		return true
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && confined(sc.AppArmorProfile) {
				return true
			}
		}
	}
	for name, value := range pod.Annotations {
		if strings.HasPrefix(name, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) {
			return value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined
		}
	}
	return false
}
