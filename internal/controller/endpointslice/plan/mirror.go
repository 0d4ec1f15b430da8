package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// Mirror is the manager of mirrored slices, as their label says.
const Mirror = "endpointslicemirroring-controller.k8s.io"

// maxInSlice is how many endpoints a slice may have.
const maxInSlice = 1000

// electionLease marks Endpoints that old programs elect their leader with.
const electionLease = "control-plane.alpha.kubernetes.io/leader"

// Changes are what to do with slices.
type Changes struct {
	Create, Update []*discoveryv1.EndpointSlice
	Delete         []*discoveryv1.EndpointSlice
}

// Mirrored says whether Endpoints are mirrored: a person wrote them for a Service
// that has no selector. Either may be nil.
func Mirrored(svc *corev1.Service, e *corev1.Endpoints) bool {
	if svc == nil || e == nil || svc.Spec.Selector != nil || e.Labels[discoveryv1.LabelSkipMirror] == "true" {
		return false
	}
	_, lease := e.Annotations[electionLease]
	return !lease
}

// MirrorSlices compares the slices that mirror Endpoints with those that should. With
// nil Endpoints there should be none.
func MirrorSlices(e *corev1.Endpoints, current []*discoveryv1.EndpointSlice) Changes {
	var c Changes
	spare := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range current {
		key := groupKey(s.AddressType, s.Ports)
		spare[key] = append(spare[key], s)
	}
	for _, g := range groups(e) {
		key := groupKey(g.addressType, g.ports)
		for endpoints := range slices.Chunk(g.endpoints, maxInSlice) {
			wanted := sliceOf(e, g, endpoints)
			if len(spare[key]) == 0 {
				c.Create = append(c.Create, wanted)
				continue
			}
			old := spare[key][0]
			spare[key] = spare[key][1:]
			if next := *old; !same(old, wanted) {
				next.Labels, next.Annotations, next.OwnerReferences = wanted.Labels, wanted.Annotations, wanted.OwnerReferences
				next.Endpoints = wanted.Endpoints
				c.Update = append(c.Update, &next)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(spare)) {
		c.Delete = append(c.Delete, spare[key]...)
	}
	return c
}

func same(a, b *discoveryv1.EndpointSlice) bool {
	return apiequality.Semantic.DeepEqual(a.Endpoints, b.Endpoints) &&
		apiequality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		apiequality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		apiequality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// group is the endpoints that have an address family and ports in common.
type group struct {
	addressType discoveryv1.AddressType
	ports       []discoveryv1.EndpointPort
	endpoints   []discoveryv1.Endpoint
}

func groupKey(t discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	key := string(t)
	for _, p := range ports {
		key += fmt.Sprintf(
			";%s/%s/%d/%s", ptr.Deref(p.Name, ""), ptr.Deref(p.Protocol, ""), ptr.Deref(p.Port, 0), ptr.Deref(p.AppProtocol, ""),
		)
	}
	return key
}

// groups sorts what Endpoints hold; nil Endpoints hold nothing.
func groups(e *corev1.Endpoints) []*group {
	if e == nil {
		return nil
	}
	byKey := map[string]*group{}
	for i := range e.Subsets {
		s := &e.Subsets[i]
		ports := portsOfSubset(s)
		add := func(a corev1.EndpointAddress, ready bool) {
			t := discoveryv1.AddressTypeIPv4
			// One that was written before there was one way to write it may have zeros in front.
			ip := netutils.ParseIPSloppy(a.IP)
			if ip == nil {
				return // the API server refuses such addresses
			}
			a.IP = ip.String()
			if netutils.IsIPv6(ip) {
				t = discoveryv1.AddressTypeIPv6
			}
			key := groupKey(t, ports)
			if byKey[key] == nil {
				byKey[key] = &group{addressType: t, ports: ports}
			}
			g := byKey[key]
			g.endpoints = append(g.endpoints, endpointOf(a, ready))
		}
		for _, a := range s.Addresses {
			add(a, true)
		}
		for _, a := range s.NotReadyAddresses {
			add(a, false)
		}
	}
	var out []*group
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		g := byKey[key]
		slices.SortStableFunc(g.endpoints, func(a, b discoveryv1.Endpoint) int {
			return cmp.Compare(a.Addresses[0], b.Addresses[0])
		})
		out = append(out, g)
	}
	return out
}

func portsOfSubset(s *corev1.EndpointSubset) []discoveryv1.EndpointPort {
	ports := make([]discoveryv1.EndpointPort, len(s.Ports))
	for i, p := range s.Ports {
		ports[i] = discoveryv1.EndpointPort{
			Name:        ptr.To(p.Name),
			Port:        ptr.To(p.Port),
			Protocol:    ptr.To(p.Protocol),
			AppProtocol: p.AppProtocol,
		}
	}
	return ports
}

func endpointOf(a corev1.EndpointAddress, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses: []string{a.IP}, NodeName: a.NodeName, TargetRef: a.TargetRef,
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(ready)},
	}
	if a.Hostname != "" {
		e.Hostname = ptr.To(a.Hostname)
	}
	return e
}

func sliceOf(e *corev1.Endpoints, g *group, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Namespace, GenerateName: e.Name + "-", Labels: map[string]string{}, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints")),
			},
		},
		AddressType: g.addressType, Ports: g.ports, Endpoints: endpoints,
	}
	for key, value := range e.Labels {
		switch key {
		case discoveryv1.LabelManagedBy, discoveryv1.LabelServiceName, discoveryv1.LabelSkipMirror:
		default:
			s.Labels[key] = value
		}
	}
	s.Labels[discoveryv1.LabelManagedBy], s.Labels[discoveryv1.LabelServiceName] = Mirror, e.Name
	for key, value := range e.Annotations {
		if key != corev1.LastAppliedConfigAnnotation && key != corev1.EndpointsLastChangeTriggerTime {
			s.Annotations[key] = value
		}
	}
	return s
}
