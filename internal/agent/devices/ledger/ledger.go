package ledger

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Grace is how long a resource is counted after its plugin went away.
const Grace = 5 * time.Minute

// Device is one device as its plugin lists it.
type Device struct {
	ID      string
	Healthy bool
	// Nodes are the NUMA nodes that it is near to, none if its plugin does not say.
	Nodes []int64
}

// Grant is what one container has of one resource.
type Grant struct {
	Pod                 types.UID
	Container, Resource string
	// Devices are in the order in which they were given.
	Devices []string
	// Answer is what the plugin said about how to use them, as it came; nil while it has not said anything.
	Answer []byte
}

// key names the place of a grant.
type key struct {
	pod                 types.UID
	container, resource string
}

func (g *Grant) key() key { return key{g.Pod, g.Container, g.Resource} }

// offer is what is known of one resource.
type offer struct {
	devices map[string]Device
	// lost is when the plugin went away; zero while it is there.
	lost time.Time
	// expired says that the resource is no longer counted.
	expired bool
}

// Ledger is the books of one node. The zero value is not usable; New makes one.
type Ledger struct {
	resources map[string]*offer
	grants    map[key]Grant
	// owners says, by resource, which pod has a device.
	owners map[string]map[string]types.UID
}

// New returns empty books.
func New() *Ledger {
	return &Ledger{resources: map[string]*offer{}, grants: map[key]Grant{}, owners: map[string]map[string]types.UID{}}
}

// List takes in all devices that the resource's plugin has now.
func (l *Ledger) List(name string, devices []Device) {
	r := &offer{devices: make(map[string]Device, len(devices))}
	for _, d := range devices {
		r.devices[d.ID] = d
	}
	l.resources[name] = r
}

// Expect notes a resource that had a plugin in an earlier life of the agent, whose plugin is still to come.
func (l *Ledger) Expect(name string, now time.Time) {
	if l.resources[name] == nil {
		l.resources[name] = &offer{lost: now}
	}
}

// Lose notes that the resource's plugin went away: none of its devices is healthy any more.
func (l *Ledger) Lose(name string, now time.Time) {
	r := l.resources[name]
	if r == nil || !r.lost.IsZero() {
		return
	}
	r.lost = now
	for id, d := range r.devices {
		d.Healthy = false
		r.devices[id] = d
	}
}

// Expire stops counting the resources whose plugins are away for longer than the grace period; changed says whether
// there were any.
func (l *Ledger) Expire(now time.Time) (changed bool) {
	for _, r := range l.resources {
		if !r.expired && !r.lost.IsZero() && now.Sub(r.lost) >= Grace {
			r.expired, r.devices, changed = true, nil, true
		}
	}
	return changed
}

// Knows says whether the resource is one that device plugins provide.
func (l *Ledger) Knows(name string) bool { return l.resources[name] != nil }

// Total is how much of a resource a node has, and how much of that pods can have in all.
type Total struct{ Capacity, Allocatable int64 }

// Totals counts the devices of every resource.
func (l *Ledger) Totals() map[string]Total {
	out := make(map[string]Total, len(l.resources))
	for name, r := range l.resources {
		t := Total{Capacity: int64(len(r.devices))}
		for _, d := range r.devices {
			if d.Healthy {
				t.Allocatable++
			}
		}
		out[name] = t
	}
	return out
}

// Devices lists the devices of a resource by their IDs.
func (l *Ledger) Devices(name string) []Device {
	r := l.resources[name]
	if r == nil {
		return nil
	}
	out := make([]Device, 0, len(r.devices))
	for _, id := range slices.Sorted(maps.Keys(r.devices)) {
		out = append(out, r.devices[id])
	}
	return out
}

// Resources names all resources that are counted.
func (l *Ledger) Resources() []string {
	out := make([]string, 0, len(l.resources))
	for name, r := range l.resources {
		if !r.expired {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Put enters a grant in place of one that the container has of the resource.
func (l *Ledger) Put(g Grant) {
	l.drop(g.key())
	l.grants[g.key()] = g
	owners := l.owners[g.Resource]
	if owners == nil {
		owners = map[string]types.UID{}
		l.owners[g.Resource] = owners
	}
	for _, id := range g.Devices {
		owners[id] = g.Pod
	}
}

// drop takes a grant out of the books. Devices that another container of the pod has too stay the pod's.
func (l *Ledger) drop(k key) {
	old, ok := l.grants[k]
	if !ok {
		return
	}
	delete(l.grants, k)
	owners := l.owners[k.resource]
	for _, id := range old.Devices {
		delete(owners, id)
	}
	for _, g := range l.Of(k.pod) {
		if g.Resource == k.resource {
			for _, id := range g.Devices {
				owners[id] = g.Pod
			}
		}
	}
	if len(owners) == 0 {
		delete(l.owners, k.resource)
	}
}

// Free takes back everything that the pod has; false if it has nothing.
func (l *Ledger) Free(pod types.UID) bool {
	grants := l.Of(pod)
	for i := range grants {
		l.drop(grants[i].key())
	}
	return len(grants) > 0
}

// Drop takes back one grant.
func (l *Ledger) Drop(g Grant) { l.drop(g.key()) }

// Get is what the container has of the resource.
func (l *Ledger) Get(pod types.UID, container, resource string) (Grant, bool) {
	g, ok := l.grants[key{pod, container, resource}]
	return g, ok
}

// Of lists what a pod has, by container and resource.
func (l *Ledger) Of(pod types.UID) []Grant {
	var out []Grant
	for k, g := range l.grants {
		if k.pod == pod {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, compare)
	return out
}

// Grants lists everything that was given.
func (l *Ledger) Grants() []Grant { return slices.SortedFunc(maps.Values(l.grants), compare) }

func compare(a, b Grant) int {
	return slices.Compare([]string{string(a.Pod), a.Container, a.Resource}, []string{
		string(b.Pod),
		b.Container,
		b.Resource,
	})
}
