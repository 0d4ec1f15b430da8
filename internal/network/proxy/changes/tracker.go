package changes

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Tracker is everything that was said. It is for one goroutine.
type Tracker struct {
	node, zone string
	pods       []netip.Prefix
	services   map[types.NamespacedName]frontends
	// slices are kept by their Service, and as they came: what hints mean depends on
	// the node's zone, and the caller keeps them anyway.
	slices map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice
	owner  map[types.NamespacedName]types.NamespacedName // of a slice
	dirty  map[types.NamespacedName]bool
}

// New makes a tracker for the node of that name.
func New(node string) *Tracker {
	return &Tracker{
		node: node, services: map[types.NamespacedName]frontends{},
		slices: map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice{},
		owner:  map[types.NamespacedName]types.NamespacedName{}, dirty: map[types.NamespacedName]bool{},
	}
}

// Service takes what a Service says now; nil if it is gone.
func (t *Tracker) Service(name types.NamespacedName, svc *corev1.Service) {
	f := frontendsOf(svc)
	_, known := t.services[name]
	if len(f.ports) == 0 {
		delete(t.services, name)
		if known {
			t.dirty[name] = true
		}
		return
	}
	t.services[name] = f
	t.dirty[name] = true
}

// Slice takes what an EndpointSlice says now; nil if it is gone. The slice is kept
// and must not change.
func (t *Tracker) Slice(name types.NamespacedName, s *discoveryv1.EndpointSlice) {
	before, known := t.owner[name]
	var now types.NamespacedName
	if s != nil && s.AddressType == discoveryv1.AddressTypeIPv4 && !headless(s) {
		now = types.NamespacedName{Namespace: name.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	}
	if known && before != now {
		delete(t.slices[before], name.Name)
		if len(t.slices[before]) == 0 {
			delete(t.slices, before)
		}
		delete(t.owner, name)
		t.touch(before)
	}
	if now.Name == "" {
		return
	}
	if t.slices[now] == nil {
		t.slices[now] = map[string]*discoveryv1.EndpointSlice{}
	}
	t.slices[now][name.Name], t.owner[name] = s, now
	t.touch(now)
}

// headless says that the slice is only for names: whoever made it wants nothing forwarded to it.
func headless(s *discoveryv1.EndpointSlice) bool {
	_, labelled := s.Labels[corev1.IsHeadlessService]
	return labelled
}

// ClusterIP is the address of a Service that is forwarded; the zero address if there is none.
func (t *Tracker) ClusterIP(name types.NamespacedName) netip.Addr {
	if f := t.services[name]; len(f.ports) > 0 {
		return f.ports[0].ClusterIP
	}
	return netip.Addr{}
}

func (t *Tracker) touch(service types.NamespacedName) {
	if _, forwarded := t.services[service]; forwarded {
		t.dirty[service] = true
	}
}

// Node takes what the node itself says; changed says that its pod networks are others now.
func (t *Tracker) Node(n *corev1.Node) (changed bool) {
	if zone := n.Labels[corev1.LabelTopologyZone]; zone != t.zone {
		t.zone = zone
		for name := range t.services {
			t.dirty[name] = true
		}
	}
	var pods []netip.Prefix
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() {
			pods = append(pods, p.Masked())
		}
	}
	changed = !slices.Equal(pods, t.pods)
	t.pods = pods
	return changed
}

// Pods are the networks of the node's pods.
func (t *Tracker) Pods() []netip.Prefix { return t.pods }

// Take tells the Services of which something was said since the last time, by name.
func (t *Tracker) Take() []Service {
	out := t.resolve(maps.Keys(t.dirty))
	clear(t.dirty)
	return out
}

// All tells every Service that is forwarded, by name.
func (t *Tracker) All() []Service { return t.resolve(maps.Keys(t.services)) }

func (t *Tracker) resolve(names func(func(types.NamespacedName) bool)) []Service {
	var out []Service
	for name := range names {
		out = append(out, t.service(name))
	}
	slices.SortFunc(out, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Name.Namespace, b.Name.Namespace), cmp.Compare(a.Name.Name, b.Name.Name))
	})
	return out
}

func (t *Tracker) service(name types.NamespacedName) Service {
	f := t.services[name]
	out := Service{Name: name, Ports: slices.Clone(f.ports), HealthCheckPort: f.healthCheck}
	var read []slice
	for _, key := range slices.Sorted(maps.Keys(t.slices[name])) {
		read = append(read, t.read(t.slices[name][key]))
	}
	for i := range out.Ports {
		p := &out.Ports[i]
		var all []candidate
		for _, s := range read {
			for _, sp := range s.ports {
				if sp.name != f.names[i] || sp.protocol != p.Protocol {
					continue
				}
				for _, e := range s.endpoints {
					all = append(all, candidate{e, netip.AddrPortFrom(e.ip, sp.port)})
				}
			}
		}
		p.choose(all)
	}
	return out
}
