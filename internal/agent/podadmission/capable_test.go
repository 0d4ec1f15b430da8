package podadmission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestIncapable(t *testing.T) {
	old, able := &corev1.Node{}, &corev1.Node{}
	able.Status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}
	profile := func(kind corev1.AppArmorProfileType) *corev1.AppArmorProfile {
		return &corev1.AppArmorProfile{Type: kind}
	}
	groups := func(p corev1.SupplementalGroupsPolicy) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: &p}
		}
	}
	for name, c := range map[string]struct {
		change   func(*corev1.Pod)
		node     *corev1.Node
		appArmor bool
		reason   string
		message  string
	}{
		"an ordinary pod": {change: func(*corev1.Pod) {}, node: old},
		"another system": {change: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }, node: old,
			reason: "PodOSNotSupported", message: "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS"},
		"this system": {change: func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Linux} }, node: old},
		"the label of another system": {change: func(p *corev1.Pod) { p.Labels = map[string]string{"kubernetes.io/os": "windows"} }, node: old,
			reason: "PodOSSelectorNodeLabelDoesNotMatch", message: "Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"},
		"strict groups": {change: groups(corev1.SupplementalGroupsPolicyStrict), node: old,
			reason: "SupplementalGroupsPolicyNotSupported", message: "Pod was rejected: SupplementalGroupsPolicy=Strict is not supported in this node"},
		"strict groups where the runtime can": {change: groups(corev1.SupplementalGroupsPolicyStrict), node: able},
		"merged groups":                       {change: groups(corev1.SupplementalGroupsPolicyMerge), node: old},
		"AppArmor for the pod": {change: func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: profile(corev1.AppArmorProfileTypeRuntimeDefault)}
		}, node: old, reason: "AppArmor", message: "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		"AppArmor for a container, where it is": {change: func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: profile(corev1.AppArmorProfileTypeLocalhost)}
		}, node: old, appArmor: true},
		"AppArmor for a container": {change: func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: profile(corev1.AppArmorProfileTypeLocalhost)}
		}, node: old, reason: "AppArmor", message: "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"},
		"unconfined": {change: func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AppArmorProfile: profile(corev1.AppArmorProfileTypeUnconfined)}
		}, node: old},
		"AppArmor in the old words": {change: func(p *corev1.Pod) {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/main": "runtime/default"}
		}, node: old, reason: "AppArmor", message: "Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := boxPod()
			c.change(pod)
			got := incapable(pod, c.node, c.appArmor)
			if got == nil {
				got = &Refusal{}
			}
			if want := (Refusal{c.reason, c.message}); *got != want {
				t.Errorf("refused with %+v, want %+v", *got, want)
			}
		})
	}
}
