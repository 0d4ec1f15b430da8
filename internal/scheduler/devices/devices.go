// Package devices knows the devices that drivers offer and the claims to them, and chooses devices for the claims of a
// pod that may get a node. The choice among devices is that of Kubernetes' own allocator; what is asked, in which
// state, and how long it may take is decided here.
package devices

import (
	"fmt"
	"maps"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/objects/objectversion"
)

// features are those parts of claims and slices that are acted on. Devices with conditions that are to be waited for
// are not given out.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, ConsumableCapacity: true,
}

// expressions is how many compiled selectors are kept.
const expressions = 100

// pool is a driver's pool of devices.
type pool struct{ driver, name string }

// promise is a claim as it is to become: with devices, or without those that it has.
type promise struct {
	next *resourcev1.ResourceClaim
	// until is the version from which on what the API says of the claim is all there is; "" while it is being written.
	until string
}

// gives says whether the claim is to get devices.
func (p *promise) gives() bool { return p.next.Status.Allocation != nil }

// kept says whether a claim that the API shows makes an end of the promise. What has the devices, or lacks them, as
// promised does also before the answer to the write is here.
func (p *promise) kept(c *resourcev1.ResourceClaim) bool {
	return p.gives() == (c.Status.Allocation != nil) || p.until != "" && !objectversion.Older(c.ResourceVersion, p.until)
}

// Book is what is known of devices. Call New. One goroutine owns it.
type Book struct {
	known   bool
	claims  map[string]*resourcev1.ResourceClaim // by namespace/name
	classes classes
	slices  map[pool]map[types.UID]*resourcev1.ResourceSlice
	// onNode are the pools of which a slice names a node; anywhere those with a slice that names none.
	onNode   map[string]map[pool]int
	anywhere map[pool]int
	// promised are claims as they are to become, by UID: what was decided here and the API does not show yet.
	promised map[types.UID]*promise

	// taken are the devices that claims have, counts how many claims have each: more than one only if somebody else gave
	// it twice.
	taken  sets.Set[structured.DeviceID]
	counts map[structured.DeviceID]int
	shares sets.Set[structured.SharedDeviceID]
	used   structured.ConsumedCapacityCollection
	cache  *cel.Cache
	// patience is how long the choice for one pod may take.
	patience time.Duration
	clock    clock.PassiveClock
	pace     pace
	// last is what was asked in the attempt under way.
	last *question
}

// New returns a book that knows nothing yet. The clock measures what choices cost.
func New(clock clock.PassiveClock) *Book {
	return &Book{
		clock: clock, pace: pace{},
		claims: map[string]*resourcev1.ResourceClaim{}, classes: classes{},
		slices: map[pool]map[types.UID]*resourcev1.ResourceSlice{},
		onNode: map[string]map[pool]int{}, anywhere: map[pool]int{}, promised: map[types.UID]*promise{},
		taken: sets.New[structured.DeviceID](), counts: map[structured.DeviceID]int{},
		shares: sets.New[structured.SharedDeviceID](), used: structured.NewConsumedCapacityCollection(),
		patience: patience,
	}
}

// Known says that everything that there is has been told. Before that no device is given out.
func (b *Book) Known() {
	b.known = true
	// What compiles selectors takes some megabytes, which clusters without claims need not have.
	b.cache = cel.NewCache(expressions, cel.Features{EnableConsumableCapacity: true})
}

// classes are by name.
type classes map[string]*resourcev1.DeviceClass

// List implements structured.DeviceClassLister.
func (c classes) List() (out []*resourcev1.DeviceClass, _ error) {
	for _, class := range c {
		out = append(out, class)
	}
	return out, nil
}

// Get implements structured.DeviceClassLister.
func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, fmt.Errorf("device class %s does not exist", name)
}

// SetClass takes over a class.
func (b *Book) SetClass(c *resourcev1.DeviceClass) { b.classes[c.Name] = c }

// DeleteClass forgets a class.
func (b *Book) DeleteClass(name string) { delete(b.classes, name) }

// SetSlice takes over a slice.
func (b *Book) SetSlice(s *resourcev1.ResourceSlice) {
	b.DeleteSlice(s)
	of := pool{s.Spec.Driver, s.Spec.Pool.Name}
	if b.slices[of] == nil {
		b.slices[of] = map[types.UID]*resourcev1.ResourceSlice{}
	}
	b.slices[of][s.UID] = s
	b.count(s, of, 1)
}

// DeleteSlice forgets a slice. Its driver, pool and node never change.
func (b *Book) DeleteSlice(s *resourcev1.ResourceSlice) {
	of := pool{s.Spec.Driver, s.Spec.Pool.Name}
	known := b.slices[of][s.UID]
	if known == nil {
		return
	}
	b.count(known, of, -1)
	delete(b.slices[of], s.UID)
	if len(b.slices[of]) == 0 {
		delete(b.slices, of)
	}
}

func (b *Book) count(s *resourcev1.ResourceSlice, of pool, change int) {
	pools := b.anywhere
	if node := s.Spec.NodeName; node != nil {
		if pools = b.onNode[*node]; pools == nil {
			pools = map[pool]int{}
			b.onNode[*node] = pools
		}
	}
	pools[of] += change
	if pools[of] == 0 {
		delete(pools, of)
	}
	if node := s.Spec.NodeName; node != nil && len(pools) == 0 {
		delete(b.onNode, *node)
	}
}

// near lists the slices of all pools that may have a device for a node, and no others: a fleet has a pool for each
// node.
func (b *Book) near(node string) (out []*resourcev1.ResourceSlice) {
	pools := maps.Clone(b.anywhere)
	maps.Copy(pools, b.onNode[node])
	for of := range pools {
		for _, slice := range b.slices[of] {
			out = append(out, slice)
		}
	}
	return out
}

// SetClaim takes over a claim, and returns the one known before, nil for none.
func (b *Book) SetClaim(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	before := b.claim(key(c))
	if p := b.promised[c.UID]; p != nil && p.kept(c) {
		b.Forget(p.next)
	}
	b.replace(key(c), c)
	return before
}

// DeleteClaim forgets a claim, and returns it as it was known, nil if it was not: the last word of the API may be that
// it has no devices any more, which nobody was told before.
func (b *Book) DeleteClaim(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	before := b.claim(key(c))
	if before != nil && before.UID != c.UID {
		before = nil
	}
	if p := b.promised[c.UID]; p != nil {
		b.Forget(p.next)
	}
	if known := b.claims[key(c)]; known != nil && known.UID == c.UID {
		b.replace(key(c), nil)
	}
	return before
}

func (b *Book) replace(key string, c *resourcev1.ResourceClaim) {
	if old := b.claims[key]; old != nil {
		b.book(old, -1)
	}
	delete(b.claims, key)
	if c == nil {
		return
	}
	b.claims[key] = c
	b.book(c, 1)
}

// claim is one as it is, or as it is to become if it is given devices; nil if there is none.
func (b *Book) claim(key string) *resourcev1.ResourceClaim {
	known := b.claims[key]
	if known == nil {
		return nil
	}
	if p := b.promised[known.UID]; p != nil && p.gives() {
		return p.next
	}
	return known
}

// Promise notes what a claim is to become, until the API shows it or Forget is called. Devices that it gets are taken
// from now on; those that it gives back are not free before the API says so. Meanwhile no pod gets a node because of
// the claim.
func (b *Book) Promise(c *resourcev1.ResourceClaim) {
	known := b.claims[key(c)]
	// Another user of devices that a claim has takes none.
	if known == nil || known.UID != c.UID || b.promised[c.UID] != nil ||
		(known.Status.Allocation != nil) == (c.Status.Allocation != nil) {
		return
	}
	b.promised[c.UID] = &promise{next: c}
	b.book(c, 1)
}

// Until says that nothing of a promise can be written any more from a version of the claim on: it ends when the API
// shows that one or a later one. It says whether it has ended now.
func (b *Book) Until(c *resourcev1.ResourceClaim, version string) bool {
	p := b.promised[c.UID]
	if p == nil || p.next != c {
		return false
	}
	p.until = version
	if known := b.claims[key(c)]; known != nil && !p.kept(known) {
		return false
	}
	return b.Forget(c)
}

// Forget takes a promise back. It says whether there was one.
func (b *Book) Forget(c *resourcev1.ResourceClaim) bool {
	p := b.promised[c.UID]
	if p == nil || p.next != c { // A promise that was made for another pod stands.
		return false
	}
	b.book(p.next, -1)
	delete(b.promised, c.UID)
	return true
}

// book counts the devices of a claim as taken, or as free again.
func (b *Book) book(c *resourcev1.ResourceClaim, change int) {
	if c.Status.Allocation == nil {
		return
	}
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue // others have the device too
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			b.counts[id] += change
			if b.counts[id] <= 0 {
				delete(b.counts, id)
				b.taken.Delete(id)
			} else {
				b.taken.Insert(id)
			}
			continue
		}
		share := structured.MakeSharedDeviceID(id, r.ShareID)
		amount := structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity)
		if change > 0 {
			b.shares.Insert(share)
			b.used.Insert(amount)
		} else {
			b.shares.Delete(share)
			b.used.Remove(amount)
		}
	}
}

// state is what the allocator is told of devices that are taken.
func (b *Book) state() structured.AllocatedState {
	return structured.AllocatedState{AllocatedDevices: b.taken, AllocatedSharedDeviceIDs: b.shares,
		AggregatedCapacity: b.used}
}

func key(c *resourcev1.ResourceClaim) string { return c.Namespace + "/" + c.Name }
