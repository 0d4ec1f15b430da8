package service

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/registry/service/plan"
)

// given assigns what a Service needs beside what others hold, and returns the error's text.
func given(s, old *corev1.Service, ports ...int32) string {
	held := written{plan.AddressName(netip.MustParseAddr("10.96.0.9")): "default/other/uid"}
	for _, p := range ports {
		held[plan.NodePortName(p)] = "default/other/uid"
	}
	checked := make(chan struct{})
	close(checked)
	a := &allocator{networks: &networks{cidrs: noCIDRs{}, configured: netip.MustParsePrefix("10.96.0.0/24")}, reservations: held, checked: checked}
	if _, err := a.begin(context.Background(), s, old, false); err != nil {
		return err.Error()
	}
	return ""
}

// written is a database in which it is written who holds what.
type written map[string]string

func (w written) Holders(_ context.Context, names ...string) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range names {
		if w[name] != "" {
			out[name] = w[name]
		}
	}
	return out, nil
}

func (w written) AllHolders(_ context.Context, beginning string) (map[string]string, error) {
	out := map[string]string{}
	for name, holder := range w {
		if strings.HasPrefix(name, beginning) {
			out[name] = holder
		}
	}
	return out, nil
}

// noCIDRs is a database before the default ServiceCIDR is made.
type noCIDRs struct{ Objects }

func (noCIDRs) List(context.Context) ([]runtime.Object, error) { return nil, nil }

func TestNodePortsBelongToOneService(t *testing.T) {
	s := allocated(corev1.ServiceTypeNodePort)
	s.Spec.Ports[0].NodePort = 30005
	const taken = `Service "s" is invalid: spec.ports[0].nodePort: Invalid value: 30005: provided port is already allocated`
	if got := given(s, nil, 30005); got != taken {
		t.Errorf("another service's port: %q, want %q", got, taken)
	}
	// The same number for two protocols is one Service's choice.
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "u", Port: 80, Protocol: corev1.ProtocolUDP, NodePort: 30005})
	if got := given(s, nil); got != "" {
		t.Errorf("one number for two protocols: %q", got)
	}
	// One that may be any does not take one that is asked for further on.
	all := make([]int32, 0, plan.LastNodePort-plan.FirstNodePort)
	for p := int32(plan.FirstNodePort); p <= plan.LastNodePort; p++ {
		if p != 30007 && p != 30008 {
			all = append(all, p)
		}
	}
	s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 0, 30007
	if got := given(s, nil, all...); got != "" || s.Spec.Ports[0].NodePort != 30008 {
		t.Errorf("with two ports left: %d, %q; want 30008", s.Spec.Ports[0].NodePort, got)
	}
	s.Spec.Ports[0].NodePort = 29999
	if got := given(s, nil); got != `Service "s" is invalid: spec.ports[0].nodePort: Invalid value: 29999: provided port is not in the valid range. The range of valid ports is 30000-32767` {
		t.Errorf("outside the range: %q", got)
	}
}

func TestHealthCheckPort(t *testing.T) {
	s := allocated(corev1.ServiceTypeLoadBalancer)
	if got := given(s, nil); got != "" || s.Spec.HealthCheckNodePort != 0 {
		t.Errorf("policy Cluster: port %d, %q; want none", s.Spec.HealthCheckNodePort, got)
	}
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	if got := given(s, nil); got != "" || s.Spec.HealthCheckNodePort < plan.FirstNodePort || s.Spec.HealthCheckNodePort == s.Spec.Ports[0].NodePort {
		t.Errorf("policy Local: port %d beside node port %d, %q", s.Spec.HealthCheckNodePort, s.Spec.Ports[0].NodePort, got)
	}
	again := s.DeepCopy()
	again.Spec.HealthCheckNodePort = 0
	if got := given(again, s); got != "" || again.Spec.HealthCheckNodePort != s.Spec.HealthCheckNodePort {
		t.Errorf("left out of an update: %d, %q; want %d", again.Spec.HealthCheckNodePort, got, s.Spec.HealthCheckNodePort)
	}
	if got := given(again, nil, again.Spec.HealthCheckNodePort); got == "" {
		t.Error("another service's port is given")
	}
}

func TestFamiliesThatThereAreNoneOf(t *testing.T) {
	s := allocated(corev1.ServiceTypeClusterIP)
	s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies = "", nil, []corev1.IPFamily{corev1.IPv6Protocol}
	if got := given(s, nil); got != `Service "s" is invalid: spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster` {
		t.Errorf("the other family: %q", got)
	}
	s.Spec.IPFamilies, s.Spec.IPFamilyPolicy = nil, ptr.To(corev1.IPFamilyPolicyRequireDualStack)
	if got := given(s, nil); got != `Service "s" is invalid: spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services` {
		t.Errorf("both: %q", got)
	}
	s.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	if got := given(s, nil); got != "" || s.Spec.ClusterIP == "" || s.Spec.IPFamilies[0] != corev1.IPv4Protocol {
		t.Errorf("both if possible: %+v, %q", s.Spec, got)
	}
	s = allocated(corev1.ServiceTypeClusterIP)
	s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies = "2001:db8::1", []string{"2001:db8::1"}, nil
	if got := given(s, nil); got != `Service "s" is invalid: spec.clusterIPs[0]: Invalid value: ["2001:db8::1"]: IPv6 is not configured on this cluster` {
		t.Errorf("an address of the other family: %q", got)
	}
}

func TestAddressesThatAreAskedFor(t *testing.T) {
	for ip, want := range map[string]string{
		"10.96.0.0":   "failed to allocate IP 10.96.0.0: the provided IP (10.96.0.0) is not in the valid range. The range of valid IPs is 10.96.0.0/24",
		"10.96.0.255": "failed to allocate IP 10.96.0.255: the provided IP (10.96.0.255) is not in the valid range. The range of valid IPs is 10.96.0.0/24",
		"10.97.0.1":   "failed to allocate IP 10.97.0.1: the provided IP (10.97.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/24",
		"10.96.0.9":   "failed to allocate IP 10.96.0.9: provided IP is already allocated",
		"10.96.0.1":   "",
	} {
		s := allocated(corev1.ServiceTypeClusterIP)
		s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, []string{ip}
		if want != "" {
			want = fmt.Sprintf(`Service "s" is invalid: spec.clusterIPs: Invalid value: [%q]: %s`, ip, want)
		}
		if got := given(s, nil); got != want {
			t.Errorf("%s: %s, want %s", ip, got, want)
		}
		// What it has it keeps, also when the network is another one by now.
		if got := given(s.DeepCopy(), s); got != "" {
			t.Errorf("%s, which it has: %s", ip, got)
		}
	}
}
