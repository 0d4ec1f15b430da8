package service

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// warnings says what a Service asks for that has no effect, or is old.
func warnings(s *corev1.Service) []string {
	spec := &s.Spec
	var w []string
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		w = append(w, fmt.Sprintf(
			"annotation %s is deprecated, please use %s instead",
			corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode,
		))
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			w = append(w, utilvalidation.GetWarningsForIP(specPath.Child("clusterIPs").Index(i), ip)...)
		}
	}
	if headless(s) {
		w = append(w, headlessWarnings(spec)...)
	}
	for i, ip := range spec.ExternalIPs {
		w = append(w, utilvalidation.GetWarningsForIP(specPath.Child("externalIPs").Index(i), ip)...)
	}
	if spec.LoadBalancerIP != "" {
		w = append(w, utilvalidation.GetWarningsForIP(specPath.Child("loadBalancerIP"), spec.LoadBalancerIP)...)
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		w = append(w, utilvalidation.GetWarningsForCIDR(specPath.Child("loadBalancerSourceRanges").Index(i), cidr)...)
	}
	external := spec.Type == corev1.ServiceTypeExternalName
	if external && len(spec.ExternalIPs) > 0 {
		w = append(w, `spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if !external && spec.ExternalName != "" {
		w = append(w, `spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		w = append(w, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return w
}

// headlessWarnings name what needs an address.
func headlessWarnings(spec *corev1.ServiceSpec) []string {
	var w []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"loadBalancerIP", spec.LoadBalancerIP != ""},
		{"externalIPs", len(spec.ExternalIPs) > 0},
		{"SessionAffinity", spec.SessionAffinity != corev1.ServiceAffinityNone},
	} {
		if f.set {
			w = append(w, "spec."+f.name+" is ignored for headless services")
		}
	}
	return w
}
