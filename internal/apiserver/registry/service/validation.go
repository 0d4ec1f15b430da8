package service

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
	"github.com/everynode/everynode/internal/apiserver/registry/endpoints"
)

var specPath = field.NewPath("spec")

// agentPort is where every node's agent listens; nothing else may be published there.
const agentPort = 10250

// maxAffinitySeconds is a day.
const maxAffinitySeconds = 24 * 60 * 60

// Validate checks a new Service, metadata aside.
func Validate(s *corev1.Service) field.ErrorList { return validate(s, &corev1.Service{}) }

// validate checks a Service that was old before. Addresses and networks are written in
// one way only; those that old has stay as they were written.
func validate(s, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	if len(s.Spec.Ports) == 0 && !headless(s) && s.Spec.Type != corev1.ServiceTypeExternalName {
		errs = append(errs, field.Required(specPath.Child("ports"), ""))
	}
	errs = append(errs, validateByType(s)...)
	names := map[string]bool{}
	for i := range enough.Each(s.Spec.Ports, &errs) {
		errs = append(errs, validatePort(&s.Spec.Ports[i], len(s.Spec.Ports) > 1, names, specPath.Child("ports").Index(i))...)
	}
	errs = append(errs, metav1validation.ValidateLabels(s.Spec.Selector, specPath.Child("selector"))...)
	errs = append(errs, validateAffinity(s)...)
	errs = append(errs, validateAddresses(s, old.Spec.ClusterIPs)...)
	checkIP := check.IPs(old.Spec.ExternalIPs)
	for i, ip := range enough.Each(s.Spec.ExternalIPs, &errs) {
		at := specPath.Child("externalIPs").Index(i)
		bad := checkIP(at, ip)
		if len(bad) == 0 {
			bad = endpoints.NotSpecialIP(ip, at)
		}
		errs = append(errs, bad...)
	}
	errs = append(errs, oneOf(specPath.Child("type"), s.Spec.Type,
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeNodePort)...)
	errs = append(errs, validatePortNumbers(s)...)
	errs = append(errs, validateLoadBalancer(s, old.Spec.LoadBalancerSourceRanges)...)
	return append(errs, validatePolicies(s)...)
}

func headless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// oneOf refuses an empty value, and one that is not in the list.
func oneOf[T ~string](path *field.Path, value T, list ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return known(path, value, list...)
}

func known[T ~string](path *field.Path, value T, list ...T) field.ErrorList {
	for _, v := range list {
		if v == value {
			return nil
		}
	}
	return field.ErrorList{field.NotSupported(path, value, list)}
}

func validateByType(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			for i, p := range enough.Each(s.Spec.Ports, &errs) {
				if p.Port == agentPort {
					errs = append(errs, field.Invalid(specPath.Child("ports").Index(i), p.Port,
						fmt.Sprintf("may not expose port %v externally since it is used by kubelet", agentPort)))
				}
			}
		}
		if headless(s) {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), s.Spec.ClusterIPs[0],
				fmt.Sprintf("may not be set to 'None' for %s services", s.Spec.Type)))
		}
	case corev1.ServiceTypeExternalName:
		const why = "may not be set for ExternalName services"
		if len(s.Spec.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(specPath.Child("clusterIPs"), why))
		}
		if len(s.Spec.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(specPath.Child("ipFamilies"), why))
		}
		if s.Spec.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(specPath.Child("ipFamilyPolicy"), why))
		}
		at := specPath.Child("externalName")
		if name := strings.TrimSuffix(s.Spec.ExternalName, "."); name == "" {
			errs = append(errs, field.Required(at, ""))
		} else {
			errs = append(errs, each(at, name, utilvalidation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

func each(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

func validatePort(p *corev1.ServicePort, named bool, names map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.Name != "" {
		errs = append(errs, each(path.Child("name"), p.Name, utilvalidation.IsDNS1123Label(p.Name))...)
		if names[p.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
		}
		names[p.Name] = true
	} else if named {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, each(path.Child("port"), p.Port, utilvalidation.IsValidPortNum(int(p.Port)))...)
	errs = append(errs, podspec.Protocol(path.Child("protocol"), p.Protocol)...)
	errs = append(errs, podspec.PortNumberOrName(path.Child("targetPort"), p.TargetPort)...)
	if p.AppProtocol != nil {
		errs = append(
			errs, each(path.Child("appProtocol"), *p.AppProtocol, utilvalidation.IsQualifiedName(*p.AppProtocol))...,
		)
	}
	return errs
}

func validateAffinity(s *corev1.Service) field.ErrorList {
	errs := oneOf(
		specPath.Child("sessionAffinity"), s.Spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone,
	)
	at, config := specPath.Child("sessionAffinityConfig"), s.Spec.SessionAffinityConfig
	switch s.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		if config != nil {
			errs = append(errs, field.Forbidden(
				at, fmt.Sprintf("must not be set when session affinity is %s", corev1.ServiceAffinityNone),
			))
		}
	case corev1.ServiceAffinityClientIP:
		if seconds := *config.ClientIP.TimeoutSeconds; seconds <= 0 || seconds > maxAffinitySeconds {
			errs = append(errs, field.Invalid(at.Child("clientIP", "timeoutSeconds"), seconds,
				fmt.Sprintf("must be greater than 0 and less than %d", maxAffinitySeconds)))
		}
	}
	return errs
}

// validateAddresses checks the Service's own addresses and what family they are of.
func validateAddresses(s *corev1.Service, before []string) field.ErrorList {
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	var errs field.ErrorList
	path, ips := specPath.Child("clusterIPs"), s.Spec.ClusterIPs
	if s.Spec.ClusterIP == "" && len(ips) > 0 {
		errs = append(errs, field.Invalid(path, ips, "must be empty when `clusterIP` is not specified"))
	}
	if s.Spec.ClusterIP != "" && len(ips) > 0 && ips[0] != s.Spec.ClusterIP {
		errs = append(errs, field.Invalid(path, ips, "first value must match `clusterIP`"))
	}
	errs = append(errs, validateFamilies(s)...)
	if len(ips) > 2 {
		errs = append(errs, field.Invalid(path, ips, "may only hold up to 2 values"))
	}
	checkIP := check.IPs(before)
	for i, ip := range enough.Each(ips, &errs) {
		if i == 0 && ip == corev1.ClusterIPNone {
			if len(ips) > 1 {
				errs = append(errs, field.Invalid(path, ips, "'None' must be the first and only value"))
			}
			continue
		}
		errs = append(errs, validateClusterIP(s, i, checkIP, path.Index(i))...)
	}
	return errs
}

func validateFamilies(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	for i, f := range enough.Each(s.Spec.IPFamilies, &errs) {
		at := specPath.Child("ipFamilies").Index(i)
		errs = append(errs, known(at, f, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		if i > 0 && f == s.Spec.IPFamilies[0] {
			errs = append(errs, field.Duplicate(at, f))
		}
	}
	if p := s.Spec.IPFamilyPolicy; p != nil {
		errs = append(errs, known(specPath.Child("ipFamilyPolicy"), *p,
			corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	}
	return errs
}

func validateClusterIP(s *corev1.Service, i int, checkIP func(*field.Path, string) field.ErrorList,
	path *field.Path) field.ErrorList {
	text := s.Spec.ClusterIPs[i]
	if errs := checkIP(path, text); len(errs) > 0 {
		return errs
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || i >= len(s.Spec.IPFamilies) {
		return nil
	}
	if family := s.Spec.IPFamilies[i]; ip.Is4() != (family == corev1.IPv4Protocol) {
		return field.ErrorList{field.Invalid(
			path, text, fmt.Sprintf("expected an %v value as indicated by `ipFamilies[%v]`", family, i),
		)}
	}
	return nil
}

// validatePortNumbers refuses ports and node ports that are used twice.
func validatePortNumbers(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	path := specPath.Child("ports")
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		for i, p := range enough.Each(s.Spec.Ports, &errs) {
			if p.NodePort != 0 {
				errs = append(errs, field.Forbidden(path.Index(i).Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
			}
		}
	}
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	ports, nodePorts := map[key]bool{}, map[key]bool{}
	for i, p := range enough.Each(s.Spec.Ports, &errs) {
		k := key{p.Protocol, p.NodePort}
		if p.NodePort != 0 && nodePorts[k] {
			errs = append(errs, field.Duplicate(path.Index(i).Child("nodePort"), p.NodePort))
		}
		nodePorts[k] = true
	}
	for i, p := range enough.Each(s.Spec.Ports, &errs) {
		k := key{p.Protocol, p.Port}
		if ports[k] {
			errs = append(errs, field.Duplicate(path.Index(i), shown(p)))
		}
		ports[k] = true
	}
	return errs
}

// shown is how error texts spell a port that is taken: under its Go names.
func shown(p corev1.ServicePort) any {
	return struct {
		Name        string
		Protocol    corev1.Protocol
		AppProtocol *string
		Port        int32
		TargetPort  intstr.IntOrString
		NodePort    int32
	}{Protocol: p.Protocol, Port: p.Port}
}

func validateLoadBalancer(s *corev1.Service, rangesBefore []string) field.ErrorList {
	var errs field.ErrorList
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer
	const only = "may only be used when `type` is 'LoadBalancer'"
	if len(s.Spec.LoadBalancerSourceRanges) > 0 {
		at := specPath.Child("loadBalancerSourceRanges")
		if !balanced {
			errs = append(errs, field.Forbidden(at, only))
		}
		had := sets.New(rangesBefore...)
		for i, cidr := range enough.Each(s.Spec.LoadBalancerSourceRanges, &errs) {
			if !had.Has(cidr) {
				errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(at.Index(i), strings.TrimSpace(cidr), true, nil)...)
			}
		}
	}
	at := specPath.Child("allocateLoadBalancerNodePorts")
	if balanced && s.Spec.AllocateLoadBalancerNodePorts == nil {
		errs = append(errs, field.Required(at, ""))
	}
	if !balanced && s.Spec.AllocateLoadBalancerNodePorts != nil {
		errs = append(errs, field.Forbidden(at, only))
	}
	if class := s.Spec.LoadBalancerClass; class != nil {
		if !balanced {
			return append(errs, field.Forbidden(specPath.Child("loadBalancerClass"), only))
		}
		errs = append(errs, each(specPath.Child("loadBalancerClass"), *class, utilvalidation.IsQualifiedName(*class))...)
	}
	return errs
}

// validatePolicies checks which endpoints traffic may go to.
func validatePolicies(s *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	at, policy := specPath.Child("externalTrafficPolicy"), s.Spec.ExternalTrafficPolicy
	switch {
	case reachableFromOutside(s):
		errs = append(errs, oneOf(
			at, policy, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal,
		)...)
	case policy != "":
		errs = append(errs, field.Invalid(at, policy, "may only be set for externally-accessible services"))
	}
	if port := s.Spec.HealthCheckNodePort; port != 0 {
		at := specPath.Child("healthCheckNodePort")
		if needsHealthCheck(s) {
			errs = append(errs, each(at, port, utilvalidation.IsValidPortNum(int(port)))...)
		} else {
			errs = append(errs, field.Invalid(
				at, port, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
			))
		}
	}
	at = specPath.Child("internalTrafficPolicy")
	if p := s.Spec.InternalTrafficPolicy; p != nil {
		errs = append(errs, known(
			at, *p, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal,
		)...)
	} else if hasInternalPolicy(s) {
		errs = append(errs, field.Required(at, ""))
	}
	if d := s.Spec.TrafficDistribution; d != nil {
		errs = append(errs, known(specPath.Child("trafficDistribution"), *d,
			corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode)...)
	}
	return errs
}
