package endpointslice

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

func slice(t discoveryv1.AddressType, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: t, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	SetDefaults(s)
	return s
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		kind          discoveryv1.AddressType
		address, want string
	}{
		{discoveryv1.AddressTypeIPv4, "10.0.0.1", "[]"},
		{discoveryv1.AddressTypeIPv6, "2001:db8::1", "[]"},
		{discoveryv1.AddressTypeFQDN, "a.example.com", "[]"},
		{discoveryv1.AddressTypeIPv6, "10.0.0.1", `[endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address]`},
		{discoveryv1.AddressTypeIPv4, "2001:db8::1", `[endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address]`},
		{discoveryv1.AddressTypeIPv4, "127.0.0.1", `[endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)]`},
		{discoveryv1.AddressTypeIPv4, "169.254.1.1", `[endpoints[0].addresses[0]: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)]`},
	} {
		if got := fmt.Sprint(Validate(slice(c.kind, c.address))); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.kind, c.address, got, c.want)
		}
	}
}

func TestAddressTypeStays(t *testing.T) {
	errs := ValidateUpdate(slice(discoveryv1.AddressTypeIPv6, "2001:db8::1"), slice(discoveryv1.AddressTypeIPv4, "10.0.0.1"))
	if len(errs) != 1 || errs[0].Error() != `addressType: Invalid value: "IPv6": field is immutable` {
		t.Errorf("got %v", errs)
	}
}

// What kube-apiserver v1.36.3 answers to the same.
func TestAsKubeAPIServer(t *testing.T) {
	const v4 = discoveryv1.AddressTypeIPv4
	old := slice(v4, "10.0.0.1")
	for name, c := range map[string]struct {
		edit           func(*discoveryv1.EndpointSlice)
		create, update string
	}{
		"another type, the same endpoints": {func(s *discoveryv1.EndpointSlice) { s.AddressType = "IPv6" },
			`[endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address]`,
			`[addressType: Invalid value: "IPv6": field is immutable]`},
		"an empty protocol": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr.To(corev1.Protocol("")) },
			`[ports[0].protocol: Unsupported value: "": supported values: "SCTP", "TCP", "UDP"]`,
			`[ports[0].protocol: Unsupported value: "": supported values: "SCTP", "TCP", "UDP"]`},
		"another protocol": {func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr.To(corev1.ProtocolSCTP) }, "[]", "[]"},
	} {
		s := old.DeepCopy()
		c.edit(s)
		if got := fmt.Sprint(Validate(s)); got != c.create {
			t.Errorf("%s: to create it is answered %s, want %s", name, got, c.create)
		}
		if got := fmt.Sprint(ValidateUpdate(s, old)); got != c.update {
			t.Errorf("%s: to update it is answered %s, want %s", name, got, c.update)
		}
	}
	// Endpoints that were taken by an earlier version stay, also with what is refused today.
	old.Endpoints[0].Addresses[0] = "010.0.0.1"
	if errs := ValidateUpdate(old.DeepCopy(), old); len(errs) > 0 {
		t.Errorf("endpoints that stay are refused: %v", errs)
	}
	if got := fmt.Sprint(outdated(slice(discoveryv1.AddressTypeFQDN, "a.example.com")), outdated(old)); got != "[spec.addressType: FQDN endpoints are deprecated] []" {
		t.Errorf("warnings of the kind of address are %s", got)
	}
	if got := warnings(old); len(got) != 1 {
		t.Errorf("an address with a leading zero is remarked on by %q", got)
	}
	old.Labels = map[string]string{discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	if got := warnings(old); len(got) > 0 {
		t.Errorf("the control plane's own slice is remarked on by %q", got)
	}
}

func TestColumns(t *testing.T) {
	s := slice(discoveryv1.AddressTypeIPv4, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
	if got, want := addresses(s.Endpoints), "10.0.0.1,10.0.0.2,10.0.0.3 + 2 more..."; got != want {
		t.Errorf("endpoints are %s, want %s", got, want)
	}
	if got := ports(nil); got != "<unset>" {
		t.Errorf("no ports are %s", got)
	}
}

func TestGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*discoveryv1.EndpointSlice)
		want int64
	}{
		"nothing":     {func(*discoveryv1.EndpointSlice) {}, 3},
		"annotations": {func(s *discoveryv1.EndpointSlice) { s.Annotations = map[string]string{"a": "b"} }, 3},
		"labels":      {func(s *discoveryv1.EndpointSlice) { s.Labels = map[string]string{"a": "b"} }, 4},
		"endpoints":   {func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }, 4},
		"ports":       {func(s *discoveryv1.EndpointSlice) { s.Ports = nil }, 4},
	} {
		old := slice(discoveryv1.AddressTypeIPv4, "10.0.0.1")
		old.Generation = 3
		s := old.DeepCopy()
		s.Generation = 9
		c.edit(s)
		raiseGeneration(s, old)
		if s.Generation != c.want {
			t.Errorf("%s: generation is %d, want %d", name, s.Generation, c.want)
		}
	}
}

// This version of the API cannot write topologies. A node that is named in one already is named in the field.
func TestTopologyIsDropped(t *testing.T) {
	old := slice(discoveryv1.AddressTypeIPv4, "10.0.0.1")
	old.Endpoints[0].DeprecatedTopology = map[string]string{"kubernetes.io/hostname": "n1"}
	same := old.DeepCopy()
	dropTopology(same, old)
	if same.Endpoints[0].DeprecatedTopology == nil {
		t.Error("dropped without a change of the endpoints")
	}
	s := old.DeepCopy()
	s.Endpoints[0].Hostname = ptr.To("a")
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{DeprecatedTopology: map[string]string{"kubernetes.io/hostname": "n2", "bad key!": ""}})
	dropTopology(s, old)
	a, b := s.Endpoints[0], s.Endpoints[1]
	if a.DeprecatedTopology != nil || b.DeprecatedTopology != nil || a.NodeName == nil || *a.NodeName != "n1" || b.NodeName != nil {
		t.Errorf("got %+v and %+v", a, b)
	}
}
