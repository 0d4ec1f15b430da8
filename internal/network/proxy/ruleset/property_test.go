package ruleset_test

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/network/proxy/changes"
	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

// world is what was said last, to be said again to somebody who knows nothing.
type world struct {
	services map[types.NamespacedName]*corev1.Service
	slices   map[types.NamespacedName]*discoveryv1.EndpointSlice
	node     *corev1.Node
}

var ruled = ruleset.Node{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}}

// afresh computes everything at once: the oracle.
func (w *world) afresh() ruleset.Table {
	tracker, state := changes.New("node-1"), ruleset.New(ruled)
	tracker.Node(w.node)
	for name, slice := range w.slices {
		tracker.Slice(name, slice)
	}
	for name, svc := range w.services {
		tracker.Service(name, svc)
	}
	state.Update(tracker.All())
	return state.Whole()
}

// TestStepByStepIsTheSameAsAtOnce: rules that follow every change are those that
// would be made from nothing, every change can be applied, and no event is news twice.
func TestStepByStepIsTheSameAsAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{services: map[types.NamespacedName]*corev1.Service{}, slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{}, node: aNode("")}
		tracker, state := changes.New("node-1"), ruleset.New(ruled)
		tracker.Node(w.node)
		table := ruleset.Table{Chains: map[string][]string{}, Memories: map[string]int32{}, Elements: map[ruleset.Key]string{}}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			for range rapid.IntRange(1, 3).Draw(t, "events") {
				say(t, w, tracker)
			}
			follow(t, table, state.Update(tracker.Take()))
			if want := w.afresh(); !reflect.DeepEqual(table, want) {
				t.Fatalf("step by step:\n%v\nat once:\n%v", table, want)
			}
			if again := tracker.Take(); len(again) > 0 {
				t.Fatalf("without news: %v", again)
			}
			if d := state.Update(tracker.All()); !d.Empty() || len(d.Flows) > 0 {
				t.Fatalf("the same again: %+v", d)
			}
		}
	})
}

// follow applies a change as a packet filter does, which refuses what makes no sense.
func follow(t *rapid.T, table ruleset.Table, d ruleset.Delta) {
	for name, rules := range d.Chains {
		if _, known := table.Chains[name]; known == d.New[name] {
			t.Fatalf("chain %s: new is %v", name, d.New[name])
		}
		table.Chains[name] = rules
	}
	maps.Copy(table.Memories, d.Memories)
	for _, k := range d.Delete {
		if _, known := table.Elements[k]; !known {
			t.Fatalf("element %v is deleted but was not there", k)
		}
		delete(table.Elements, k)
	}
	for k, verdict := range d.Add {
		if _, known := table.Elements[k]; known {
			t.Fatalf("element %v is added but is there", k)
		}
		table.Elements[k] = verdict
	}
	for _, name := range d.GoneChains {
		if _, known := table.Chains[name]; !known {
			t.Fatalf("chain %s is deleted but was not there", name)
		}
		delete(table.Chains, name)
	}
	for _, name := range d.GoneMemories {
		delete(table.Memories, name)
	}
}

func aNode(zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}}
}

// say makes a random event.
func say(t *rapid.T, w *world, tracker *changes.Tracker) {
	name := types.NamespacedName{Namespace: "default", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "service")}
	slice := types.NamespacedName{Namespace: "default", Name: rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "slice")}
	switch rapid.SampledFrom([]string{"service", "service", "no service", "slice", "slice", "slice", "no slice", "zone"}).Draw(t, "event") {
	case "service":
		svc := drawService(t, name.Name)
		w.services[name] = svc
		tracker.Service(name, svc)
	case "no service":
		delete(w.services, name)
		tracker.Service(name, nil)
	case "slice":
		s := drawSlice(t, slice.Name, name.Name)
		w.slices[slice] = s
		tracker.Slice(slice, s)
	case "no slice":
		delete(w.slices, slice)
		tracker.Slice(slice, nil)
	case "zone":
		w.node = aNode(rapid.SampledFrom([]string{"", "z1", "z2"}).Draw(t, "zone"))
		tracker.Node(w.node)
	}
}

func drawService(t *rapid.T, name string) *corev1.Service {
	spec := corev1.ServiceSpec{
		// Two Services may have an address for a moment: one went and its news are late.
		ClusterIP: rapid.SampledFrom([]string{"10.96.0.1", "10.96.0.2", "None"}).Draw(t, "address"),
		Type:      rapid.SampledFrom([]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeExternalName}).Draw(t, "type"),
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "ports") {
		protocol := rapid.SampledFrom([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}).Draw(t, "protocol")
		p := corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(80 + i), Protocol: protocol}
		if spec.Type == corev1.ServiceTypeNodePort {
			p.NodePort = int32(30000 + rapid.IntRange(0, 3).Draw(t, "node port"))
		}
		spec.Ports = append(spec.Ports, p)
	}
	if rapid.Bool().Draw(t, "sticky") {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
		spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(rapid.SampledFrom([]int32{10, 20}).Draw(t, "seconds"))}}
	}
	if rapid.Bool().Draw(t, "internal local") {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if rapid.Bool().Draw(t, "external local") {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if rapid.Bool().Draw(t, "external address") {
		spec.ExternalIPs = []string{"192.0.2.1"}
	}
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
}

func drawSlice(t *rapid.T, name, service string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i := range 2 {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(fmt.Sprintf("p%d", i)), Port: ptr.To(int32(8080 + i)), Protocol: ptr.To(protocol)})
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
		node := rapid.IntRange(1, 2).Draw(t, "node")
		e := discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.%d", node, rapid.IntRange(2, 3).Draw(t, "pod"))}, NodeName: ptr.To(fmt.Sprintf("node-%d", node)),
			Conditions: discoveryv1.EndpointConditions{
				Ready: ptr.To(rapid.Bool().Draw(t, "ready")), Serving: ptr.To(rapid.Bool().Draw(t, "serving")), Terminating: ptr.To(rapid.Bool().Draw(t, "terminating")),
			},
		}
		if zone := rapid.SampledFrom([]string{"", "z1", "z2"}).Draw(t, "hint"); zone != "" {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}
