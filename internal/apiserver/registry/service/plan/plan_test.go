package plan

import (
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		owners, findings := Assign(c.services, c.holders, netip.MustParsePrefix("10.96.0.0/16"))
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
