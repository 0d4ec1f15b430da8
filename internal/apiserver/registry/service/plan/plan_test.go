package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// service is of the given age in minutes, with an address and node ports.
func service(name string, age int, address string, ports ...int32) *corev1.Service {
	born := metav1.NewTime(time.Date(2026, 1, 1, 12, -age, 0, 0, time.UTC))
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: born}}
	if address != "" {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = address, []string{address}
	}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{NodePort: p})
	}
	return s
}

func TestNames(t *testing.T) {
	s := service("a", 0, "10.96.0.5", 30001, 0, 30001, 30002)
	s.Spec.HealthCheckNodePort = 30009
	want := []string{"serviceips/10.96.0.5", "servicenodeports/30001", "servicenodeports/30002", "servicenodeports/30009"}
	if got := Names(s); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Names(service("b", 0, "None")); got != nil {
		t.Errorf("a headless Service holds %v, want nothing", got)
	}
}

func TestAssign(t *testing.T) {
	old, young := service("old", 9, "10.96.0.5", 30001), service("young", 1, "10.96.0.5", 30002)
	for name, c := range map[string]struct {
		services []*corev1.Service
		holders  map[string]string
		owners   map[string]string
		reasons  []string
	}{
		"as it should be": {
			[]*corev1.Service{old},
			map[string]string{"serviceips/10.96.0.5": Holder(old), "servicenodeports/30001": Holder(old)},
			map[string]string{"serviceips/10.96.0.5": "old", "servicenodeports/30001": "old"}, nil,
		},
		"data of a version that wrote nothing": {
			[]*corev1.Service{old}, nil,
			map[string]string{"serviceips/10.96.0.5": "old", "servicenodeports/30001": "old"}, nil,
		},
		"leaked": {
			nil, map[string]string{"serviceips/10.96.0.7": "default/gone/uid"}, map[string]string{}, nil,
		},
		"missing": {
			[]*corev1.Service{old}, map[string]string{"serviceips/10.96.0.5": Holder(old)},
			map[string]string{"serviceips/10.96.0.5": "old", "servicenodeports/30001": "old"},
			[]string{"old PortNotAllocated Port 30001 is not allocated; repairing"},
		},
		"twice, and nothing written: the oldest": {
			[]*corev1.Service{young, old}, nil,
			map[string]string{"serviceips/10.96.0.5": "old", "servicenodeports/30001": "old", "servicenodeports/30002": "young"},
			[]string{"young ClusterIPAlreadyAllocated Cluster IP [IPv4]:10.96.0.5 was assigned to multiple services; please recreate service"},
		},
		"twice, and written of the younger": {
			[]*corev1.Service{old, young},
			map[string]string{"serviceips/10.96.0.5": Holder(young), "servicenodeports/30001": Holder(old), "servicenodeports/30002": Holder(young)},
			map[string]string{"serviceips/10.96.0.5": "young", "servicenodeports/30001": "old", "servicenodeports/30002": "young"},
			[]string{"old ClusterIPAlreadyAllocated Cluster IP [IPv4]:10.96.0.5 was assigned to multiple services; please recreate service"},
		},
		"a port twice": {
			[]*corev1.Service{service("a", 2, "", 30001), service("b", 1, "", 30001)}, nil, map[string]string{"servicenodeports/30001": "a"},
			[]string{"b PortAlreadyAllocated Port 30001 was assigned to multiple services; please recreate service"},
		},
		"of one that had the same name": {
			[]*corev1.Service{old}, map[string]string{"serviceips/10.96.0.5": "default/old/another", "servicenodeports/30001": Holder(old)},
			map[string]string{"serviceips/10.96.0.5": "old", "servicenodeports/30001": "old"},
			[]string{"old ClusterIPNotAllocated Cluster IP [IPv4]: 10.96.0.5 is not allocated; repairing"},
		},
		"outside the ranges": {
			[]*corev1.Service{service("a", 1, "10.97.0.5", 80)}, nil, map[string]string{"serviceips/10.97.0.5": "a", "servicenodeports/80": "a"},
			[]string{
				"a ClusterIPOutOfRange Cluster IP [IPv4]:10.97.0.5 is not within any configured Service CIDR; please recreate service",
				"a PortOutOfRange Port 80 is not within the port range 30000-32767; please recreate service",
			},
		},
		"no address at all": {
			[]*corev1.Service{service("a", 1, "x")}, nil, map[string]string{},
			[]string{"a ClusterIPNotValid Cluster IP [0]: x is not a valid IP; please recreate Service"},
		},
	} {
		owners, findings := Assign(c.services, c.holders, netip.MustParsePrefix("10.96.0.0/16").Contains)
		got := map[string]string{}
		for name, s := range owners {
			got[name] = s.Name
		}
		if !maps.Equal(got, c.owners) {
			t.Errorf("%s: owners are %v, want %v", name, got, c.owners)
		}
		var reasons []string
		for _, f := range findings {
			reasons = append(reasons, f.Service.Name+" "+f.Reason+" "+f.Message)
		}
		if !slices.Equal(reasons, c.reasons) {
			t.Errorf("%s: found %q, want %q", name, reasons, c.reasons)
		}
	}
}

func address(name, holderUID string, change func(*networkingv1.IPAddress)) *networkingv1.IPAddress {
	a := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(holderUID)}, Spec: networkingv1.IPAddressSpec{
		ParentRef: &networkingv1.ParentReference{Group: "gateways.example.com", Resource: "gateways", Name: "g"}}}
	if change != nil {
		change(a)
	}
	return a
}

func TestMend(t *testing.T) {
	web := service("web", 1, "10.96.0.5", 30001)
	ip, name := netip.MustParseAddr("10.96.0.5"), "serviceips/10.96.0.5"
	shown, gateway := Shown(web, ip), address("10.96.0.5", "u", nil)
	if fmt.Sprint(shown.Labels, *shown.Spec.ParentRef) != "map[ipaddress.kubernetes.io/ip-family:IPv4 ipaddress.kubernetes.io/managed-by:ipallocator.k8s.io] { services default web}" {
		t.Errorf("the IPAddress of a Service is %v %v", shown.Labels, shown.Spec)
	}
	own := map[string]string{name: Holder(web)}
	for what, c := range map[string]struct {
		services  []*corev1.Service
		addresses []*networkingv1.IPAddress
		holders   map[string]string
		want      string
	}{
		"as it should be":                      {[]*corev1.Service{web}, []*networkingv1.IPAddress{shown}, map[string]string{name: Holder(web), "servicenodeports/30001": Holder(web)}, "[]"},
		"a version that showed none":           {[]*corev1.Service{web}, nil, own, "[show serviceips/10.96.0.5]"},
		"it shows another Service":             {[]*corev1.Service{web}, []*networkingv1.IPAddress{Shown(service("other", 1, ""), ip)}, own, "[show serviceips/10.96.0.5]"},
		"it shows no Service":                  {[]*corev1.Service{web}, []*networkingv1.IPAddress{gateway}, own, "[show serviceips/10.96.0.5]"},
		"somebody took the labels":             {[]*corev1.Service{web}, []*networkingv1.IPAddress{{ObjectMeta: metav1.ObjectMeta{Name: "10.96.0.5"}, Spec: shown.Spec}}, own, "[show serviceips/10.96.0.5]"},
		"the Service is gone":                  {nil, []*networkingv1.IPAddress{shown}, nil, "[discard serviceips/10.96.0.5]"},
		"the Service is gone and still holds":  {nil, []*networkingv1.IPAddress{shown}, own, "[]"},
		"a gateway's":                          {nil, []*networkingv1.IPAddress{gateway}, map[string]string{name: AddressHolder(gateway)}, "[]"},
		"a gateway's that was given back":      {nil, []*networkingv1.IPAddress{gateway}, nil, "[take serviceips/10.96.0.5]"},
		"held for an IPAddress that is gone":   {nil, nil, map[string]string{name: AddressHolder(gateway)}, "[free serviceips/10.96.0.5]"},
		"held for a Service of the same names": {[]*corev1.Service{service("web", 1, "")}, nil, own, "[]"},
	} {
		var got []string
		for _, m := range Mend(c.services, c.addresses, c.holders) {
			got = append(got, string(m.Do)+" "+m.Name)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", what, got, c.want)
		}
	}
}

func TestWhoHolds(t *testing.T) {
	web, gateway := service("web", 1, "10.96.0.5"), address("10.96.0.6", "u", nil)
	if namespace, name, ok := ServiceOf(Holder(web)); !ok || namespace != "default" || name != "web" {
		t.Errorf("a Service is %s/%s, %v", namespace, name, ok)
	}
	if _, _, ok := ServiceOf(AddressHolder(gateway)); ok {
		t.Error("an IPAddress is taken for a Service")
	}
	holders := map[string]string{"serviceips/10.96.0.5": Holder(web), "serviceips/10.96.0.6": AddressHolder(gateway), "serviceips/10.96.0.7": "default/gone/uid"}
	owners, _ := Assign([]*corev1.Service{web}, holders, func(netip.Addr) bool { return true })
	if got := Abandoned(owners, holders); !slices.Equal(got, []string{"serviceips/10.96.0.7"}) {
		t.Errorf("abandoned are %v; what an IPAddress holds is its own", got)
	}
}
