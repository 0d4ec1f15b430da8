package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// keepAllocated gives a changed Service what the old one was given and the
// client did not repeat: its address.
func keepAllocated(s, old *corev1.Service) {
	if !hasAddress(s) || !hasAddress(old) {
		return
	}
	if s.Spec.ClusterIP == "" {
		s.Spec.ClusterIP = old.Spec.ClusterIP
		if len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIPs = old.Spec.ClusterIPs
		}
	}
	if len(s.Spec.IPFamilies) == 0 {
		s.Spec.IPFamilies = old.Spec.IPFamilies
	}
	if s.Spec.IPFamilyPolicy == nil {
		s.Spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
	}
}

func hasAddress(s *corev1.Service) bool { return s.Spec.Type != corev1.ServiceTypeExternalName }

func hasNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// dropOutdated removes what a change of type leaves without meaning, unless the
// client changed it too, and so says that it should be there.
func dropOutdated(s, old *corev1.Service) {
	spec, was := &s.Spec, &old.Spec
	lost := func(had func(*corev1.Service) bool) bool { return had(old) && !had(s) }
	if lost(hasAddress) {
		dropAddress(spec, was)
	}
	if lost(hasNodePorts) && sameNodePorts(s, old) {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	if lost(needsHealthCheck) && spec.HealthCheckNodePort == was.HealthCheckNodePort {
		spec.HealthCheckNodePort = 0
	}
	if lost(reachableFromOutside) && spec.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		spec.ExternalTrafficPolicy = ""
	}
	if lost(isLoadBalancer) {
		spec.AllocateLoadBalancerNodePorts, spec.LoadBalancerClass = nil, nil
	}
}

// dropAddress removes what is about an address, each by itself: whoever removed the address need not think of the rest.
func dropAddress(spec, was *corev1.ServiceSpec) {
	if spec.ClusterIP == was.ClusterIP {
		spec.ClusterIP, spec.ClusterIPs = "", nil
	}
	if slices.Equal(spec.IPFamilies, was.IPFamilies) {
		spec.IPFamilies = nil
	}
	if ptr.Equal(spec.IPFamilyPolicy, was.IPFamilyPolicy) {
		spec.IPFamilyPolicy = nil
	}
}

func isLoadBalancer(s *corev1.Service) bool { return s.Spec.Type == corev1.ServiceTypeLoadBalancer }

func sameNodePorts(s, old *corev1.Service) bool {
	had := map[int32]bool{}
	for _, p := range old.Spec.Ports {
		had[p.NodePort] = true
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 && !had[p.NodePort] {
			return false
		}
	}
	return true
}

func needsHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer &&
		s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// nonsense reports whether a Service without an address is given what is none: that is told of as that alone.
func nonsense(s, old *corev1.Service) bool {
	return headless(old) && len(utilvalidation.IsValidIP(specPath, s.Spec.ClusterIP)) > 0
}

// ValidateUpdate checks a changed Service, metadata aside. Its address and the
// kind of it stay as long as it has one, and so does who balances its load.
func ValidateUpdate(s, old *corev1.Service) field.ErrorList {
	const stays = "may not change once set"
	var errs field.ErrorList
	spec, was := &s.Spec, &old.Spec
	if hasAddress(s) && hasAddress(old) {
		if was.ClusterIP != "" && spec.ClusterIP != was.ClusterIP && !nonsense(s, old) {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), spec.ClusterIPs, stays))
		}
		if len(spec.IPFamilies) > 0 && len(was.IPFamilies) > 0 && spec.IPFamilies[0] != was.IPFamilies[0] {
			errs = append(errs, field.Invalid(specPath.Child("ipFamilies").Index(0), spec.IPFamilies, stays))
		}
	}
	if isLoadBalancer(s) && isLoadBalancer(old) && !ptr.Equal(spec.LoadBalancerClass, was.LoadBalancerClass) {
		errs = append(errs, field.Invalid(specPath.Child("loadBalancerClass"), spec.LoadBalancerClass, stays))
	}
	if needsHealthCheck(s) && needsHealthCheck(old) && spec.HealthCheckNodePort != was.HealthCheckNodePort {
		errs = append(errs, field.Invalid(
			specPath.Child("healthCheckNodePort"), spec.HealthCheckNodePort, "field is immutable",
		))
	}
	return append(errs, validate(s, old)...)
}
