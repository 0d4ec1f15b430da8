package service

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// allocated returns a Service of the type with an address and, where its type
// has them, a node port.
func allocated(kind corev1.ServiceType) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}}
	s.Spec = corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}}
	SetDefaults(s)
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7"}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if hasNodePorts(s) {
		s.Spec.Ports[0].NodePort = 30001
	}
	return s
}

func TestChangeOfType(t *testing.T) {
	old := allocated(corev1.ServiceTypeNodePort)
	s := old.DeepCopy()
	s.Spec.Type = corev1.ServiceTypeClusterIP
	SetDefaults(s)
	dropOutdated(s, old)
	if s.Spec.Ports[0].NodePort != 0 || s.Spec.ExternalTrafficPolicy != "" || s.Spec.ClusterIP != "10.96.0.7" {
		t.Errorf("to ClusterIP: node port %d, policy %q, address %s; want none, none, the same", s.Spec.Ports[0].NodePort, s.Spec.ExternalTrafficPolicy, s.Spec.ClusterIP)
	}
	if errs := ValidateUpdate(s, old); len(errs) > 0 {
		t.Errorf("to ClusterIP: %v", errs)
	}

	s = old.DeepCopy()
	s.Spec.Type, s.Spec.ExternalName, s.Spec.InternalTrafficPolicy = corev1.ServiceTypeExternalName, "example.com", nil
	SetDefaults(s)
	dropOutdated(s, old)
	if s.Spec.ClusterIP != "" || s.Spec.ClusterIPs != nil || s.Spec.IPFamilies != nil || s.Spec.IPFamilyPolicy != nil {
		t.Errorf("to ExternalName: kept %+v", s.Spec)
	}
	if errs := ValidateUpdate(s, old); len(errs) > 0 {
		t.Errorf("to ExternalName: %v", errs)
	}
}

func TestAddressStays(t *testing.T) {
	old := allocated(corev1.ServiceTypeClusterIP)
	s := old.DeepCopy()
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
	keepAllocated(s, old)
	if errs := ValidateUpdate(s, old); len(errs) > 0 || s.Spec.ClusterIP != old.Spec.ClusterIP {
		t.Errorf("left out: got %s and %v", s.Spec.ClusterIP, errs)
	}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.8", []string{"10.96.0.8"}
	const want = `spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set`
	if errs := ValidateUpdate(s, old); len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("changed: got %v, want %s", errs, want)
	}
}

func TestValidateByType(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Service)
		want string
	}{
		"headless without ports": {func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.Ports = "None", []string{"None"}, nil
		}, ""},
		"headless with node ports": {func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyCluster
		}, `spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`},
		"name that is none": {func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, SessionAffinity: corev1.ServiceAffinityNone}
		}, "spec.externalName: Required value"},
		"loopback": {func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = []string{"127.0.0.1"}, corev1.ServiceExternalTrafficPolicyCluster
		}, `spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		"other family": {func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
			"spec.clusterIPs[0]: Invalid value: \"10.96.0.7\": expected an IPv6 value as indicated by `ipFamilies[0]`"},
		"class of an ordinary service": {func(s *corev1.Service) { s.Spec.LoadBalancerClass = ptr.To("x") },
			"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"},
	} {
		s := allocated(corev1.ServiceTypeClusterIP)
		c.edit(s)
		errs := Validate(s)
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || errs[0].Error() != c.want) {
			t.Errorf("%s: got %v, want %s", name, errs, c.want)
		}
	}
}

func TestRow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := allocated(corev1.ServiceTypeLoadBalancer)
	s.Spec.Selector = map[string]string{"app": "a"}
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(53)})
	want := []any{"s", "LoadBalancer", "10.96.0.7", "<pending>", "80:30001/TCP,53/UDP", "<unknown>", "app=a"}
	for i, got := range row(s, now) {
		if got != want[i] {
			t.Errorf("cell %d is %v, want %v", i, got, want[i])
		}
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "a.example"}}
	if got := externalIP(s); got != "192.0.2.1,a.example" {
		t.Errorf("external address is %s", got)
	}
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Service)
		want []string
	}{
		"nothing to say": {func(*corev1.Service) {}, nil},
		"old annotation": {func(s *corev1.Service) {
			s.Annotations = map[string]string{"service.kubernetes.io/topology-aware-hints": "auto"}
		},
			[]string{"annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead"}},
		"plain headless": {headlessly, nil},
		"headless, with what needs an address": {func(s *corev1.Service) {
			headlessly(s)
			s.Spec.LoadBalancerIP, s.Spec.ExternalIPs, s.Spec.SessionAffinity = "1.2.3.4", []string{"1.2.3.4"}, corev1.ServiceAffinityClientIP
		}, []string{"spec.loadBalancerIP is ignored for headless services", "spec.externalIPs is ignored for headless services", "spec.SessionAffinity is ignored for headless services"}},
		"a name that is not used": {func(s *corev1.Service) { s.Spec.ExternalName = "a.com" }, []string{`spec.externalName is ignored when spec.type is not "ExternalName"`}},
		"addresses that are not used": {func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeExternalName, []string{"1.2.3.4"}
		},
			[]string{`spec.externalIPs is ignored when spec.type is "ExternalName"`}},
		"old distribution": {func(s *corev1.Service) {
			s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
		},
			[]string{`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`}},
	} {
		s := allocated(corev1.ServiceTypeClusterIP)
		c.edit(s)
		if got := warnings(s); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func headlessly(s *corev1.Service) {
	s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
}

func TestFamilyStays(t *testing.T) {
	old := allocated(corev1.ServiceTypeClusterIP)
	s := old.DeepCopy()
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	errs := ValidateUpdate(s, old)
	const want = `spec.ipFamilies[0]: Invalid value: ["IPv6"]: may not change once set`
	if len(errs) == 0 || errs[0].Error() != want {
		t.Errorf("got %v, want %s first", errs, want)
	}
}

// Addresses and networks have one form; what is stored in another may stay.
func TestFormsOfAddresses(t *testing.T) {
	plain := func() *corev1.Service {
		s := allocated(corev1.ServiceTypeLoadBalancer)
		s.Spec.ExternalIPs, s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.1"}, []string{"192.0.2.0/24"}
		return s
	}
	for name, c := range map[string]struct {
		edit func(*corev1.ServiceSpec)
		want string
	}{
		"as they should be": {func(*corev1.ServiceSpec) {}, ""},
		"address with leading zeros": {func(s *corev1.ServiceSpec) { s.ExternalIPs[0] = "192.0.02.1" },
			`spec.externalIPs[0]: Invalid value: "192.0.02.1": must not have leading 0s`},
		"IPv4 as IPv6": {func(s *corev1.ServiceSpec) { s.ExternalIPs[0] = "::ffff:192.0.2.1" },
			`spec.externalIPs[0]: Invalid value: "::ffff:192.0.2.1": must not be an IPv4-mapped IPv6 address`},
		"cluster address with leading zeros": {func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "10.96.0.07", []string{"10.96.0.07"} },
			`spec.clusterIPs[0]: Invalid value: "10.96.0.07": must not have leading 0s`},
		"network with leading zeros": {func(s *corev1.ServiceSpec) { s.LoadBalancerSourceRanges[0] = "192.0.02.0/24" },
			`spec.loadBalancerSourceRanges[0]: Invalid value: "192.0.02.0/24": must not have leading 0s in IP or prefix length`},
		"network with bits behind it": {func(s *corev1.ServiceSpec) { s.LoadBalancerSourceRanges[0] = "192.0.2.7/24" },
			`spec.loadBalancerSourceRanges[0]: Invalid value: "192.0.2.7/24": must not have bits set beyond the prefix length`},
	} {
		s := plain()
		c.edit(&s.Spec)
		if got := Validate(s).ToAggregate(); (got == nil) != (c.want == "") || got != nil && got.Error() != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
		changed := s.DeepCopy()
		changed.Labels = map[string]string{"a": "b"}
		if errs := ValidateUpdate(changed, s); len(errs) > 0 {
			t.Errorf("%s: what is stored does not stay: %v", name, errs)
		}
	}
}

// Who changes the address alone is told once what is wrong with that.
func TestChangeOfTheAddressAlone(t *testing.T) {
	for to, want := range map[string]string{
		"None":     `spec.clusterIPs[0]: Invalid value: ["None"]: may not change once set`,
		"nonsense": `[spec.clusterIPs[0]: Invalid value: ["nonsense"]: may not change once set, spec.clusterIPs[0]: Invalid value: "nonsense": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)]`,
	} {
		for _, edit := range []func(*corev1.Service){func(*corev1.Service) {}, headlessly} {
			old := allocated(corev1.ServiceTypeClusterIP)
			edit(old)
			if old.Spec.ClusterIP == to {
				continue
			}
			s := old.DeepCopy()
			s.Spec.ClusterIP = to
			listClusterIP(s, old)
			want := want
			if headless(old) && to == "nonsense" {
				want = `spec.clusterIPs[0]: Invalid value: "nonsense": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`
			}
			if got := ValidateUpdate(s, old).ToAggregate(); got == nil || got.Error() != want {
				t.Errorf("%s to %s: %v", old.Spec.ClusterIP, to, got)
			}
		}
	}
}

// A port that is there twice gets the node port of the old one once.
func TestNodePortOfARepeatedPort(t *testing.T) {
	old := allocated(corev1.ServiceTypeNodePort)
	s := old.DeepCopy()
	s.Spec.Ports = []corev1.ServicePort{{Name: "a", Port: 80, Protocol: "TCP"}, {Name: "b", Port: 80, Protocol: "TCP"}}
	keepPorts(s, old)
	if got := fmt.Sprint(s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort); got != "30001 0" {
		t.Errorf("without node ports: %s", got)
	}
	s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 0, 30001
	keepPorts(s, old)
	if got := fmt.Sprint(s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort); got != "0 30001" {
		t.Errorf("with a node port at the second: %s", got)
	}
}
