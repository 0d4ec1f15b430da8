package ruleset

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/network/proxy/changes"
)

// Node is what the rules depend on besides the Services.
type Node struct {
	// Pods are the networks of the node's pods; with none nobody counts as being outside.
	Pods []netip.Prefix
	// Detour says that answers between two pods of the node do not pass the packet
	// filter by themselves, so that they must be sent to the node to be translated back.
	Detour bool
	// Services is the network that addresses of Services are from; none if it is not known.
	Services netip.Prefix
}

// claim is what a Service wants of an element.
type claim struct{ owner, verdict string }

// State is the rules of all Services.
type State struct {
	node     Node
	services map[types.NamespacedName]Table
	claims   map[Key][]claim // sorted by owner; the first holds
	flows    map[types.NamespacedName]map[flowKey][]netip.AddrPort
}

// New makes the rules of a node without Services.
func New(node Node) *State {
	return &State{node: node, services: map[types.NamespacedName]Table{}, claims: map[Key][]claim{},
		flows: map[types.NamespacedName]map[flowKey][]netip.AddrPort{}}
}

// Update takes where Services lead now, each once, and answers with what changes.
func (s *State) Update(list []changes.Service) Delta {
	d := newDelta()
	before := map[Key]claim{}
	for _, svc := range list {
		old, now := s.services[svc.Name], s.render(svc)
		d.replaceObjects(old, now)
		owner := svc.Name.String()
		for _, elements := range []map[Key]string{old.Elements, now.Elements} {
			for k := range elements {
				if _, noted := before[k]; !noted {
					before[k] = s.holder(k)
				}
			}
		}
		for k := range old.Elements {
			s.release(k, owner)
		}
		for k, verdict := range now.Elements {
			s.claim(k, claim{owner, verdict})
		}
		flows := flowsOf(svc)
		d.Flows = append(d.Flows, outdated(s.flows[svc.Name], flows)...)
		s.services[svc.Name], s.flows[svc.Name] = now, flows
		if len(svc.Ports) == 0 {
			delete(s.services, svc.Name)
			delete(s.flows, svc.Name)
		}
	}
	for k, was := range before {
		d.setElement(k, was, s.holder(k))
	}
	d.sort()
	return d
}

// Whole is all rules of all Services.
func (s *State) Whole() Table {
	all := newTable()
	for _, t := range s.services {
		maps.Copy(all.Chains, t.Chains)
		maps.Copy(all.Memories, t.Memories)
	}
	for k := range s.claims {
		all.Elements[k] = s.holder(k).verdict
	}
	return all
}

func (s *State) holder(k Key) claim {
	if list := s.claims[k]; len(list) > 0 {
		return list[0]
	}
	return claim{}
}

func (s *State) claim(k Key, c claim) {
	list := append(slices.Clone(s.claims[k]), c)
	slices.SortFunc(list, func(a, b claim) int { return cmp.Compare(a.owner, b.owner) })
	s.claims[k] = list
}

func (s *State) release(k Key, owner string) {
	list := slices.DeleteFunc(slices.Clone(s.claims[k]), func(c claim) bool { return c.owner == owner })
	if len(list) == 0 {
		delete(s.claims, k)
		return
	}
	s.claims[k] = list
}
