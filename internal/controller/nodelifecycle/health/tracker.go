package health

import (
	"container/list"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/loop/deadline"
)

// Config holds the times and rates of node health. The zero value of a field means its default.
type Config struct {
	// GracePeriod is how long a node may stay silent; 40 s.
	GracePeriod time.Duration
	// StartupGracePeriod is the same for a node that has never reported; 60 s.
	StartupGracePeriod time.Duration
	// EvictionRate is how many nodes per second of one zone get a NoExecute taint; 0.1.
	EvictionRate float64
	// SecondaryEvictionRate is that of a large zone of which UnhealthyShare is unhealthy; 0.01.
	SecondaryEvictionRate float64
	// LargeZone is the number of nodes from which a zone is large; a smaller one that is
	// mostly unhealthy evicts nobody; 51.
	LargeZone int
	// UnhealthyShare is the part of unhealthy nodes at which a zone is disrupted; 0.55.
	UnhealthyShare float64
}

func (c Config) withDefaults() Config {
	set(&c.GracePeriod, 40*time.Second)
	set(&c.StartupGracePeriod, 60*time.Second)
	set(&c.EvictionRate, 0.1)
	set(&c.SecondaryEvictionRate, 0.01)
	set(&c.LargeZone, 51)
	set(&c.UnhealthyShare, 0.55)
	return c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// entry is what is known of one node.
type entry struct {
	node *corev1.Node // shared with the informer: read only
	// seen is when a sign of life was last noticed here.
	seen time.Time
	// renewed and posted are the last signs' own times, by the node's clock.
	renewed, posted time.Time
	lapsed          bool
	// grace ends when the node lapses, or earlier: signs of life do not move it.
	grace deadline.Timer[*entry]

	zone    *zone
	healthy bool          // as counted in zone
	evict   bool          // may have a NoExecute taint
	queued  *list.Element // its place in the zone's queue for that; nil if it does not wait
	// unmarked is set when the node became unknown and its pods are still called ready.
	unmarked bool
}

// Tracker follows the health of all nodes. One owner at a time.
type Tracker struct {
	cfg    Config
	nodes  map[string]*entry
	graces deadline.Timers[*entry] // of the nodes that have not lapsed
	zones  map[string]*zone
	dirty  map[string]struct{}
	// disrupted is set while no zone has a healthy node.
	disrupted bool
}

// New makes a tracker that knows no node.
func New(cfg Config) *Tracker {
	return &Tracker{
		cfg:   cfg.withDefaults(),
		nodes: map[string]*entry{},
		zones: map[string]*zone{},
		dirty: map[string]struct{}{},
	}
}

// Observe tells the state of a node. node is kept and must not change afterwards.
func (t *Tracker) Observe(node *corev1.Node, now time.Time) {
	e := t.nodes[node.Name]
	if e != nil && e.node.UID != node.UID {
		t.Forget(node.Name)
		e = nil
	}
	if e == nil {
		e = &entry{node: node, seen: now, posted: node.CreationTimestamp.Time}
		e.grace.Owner = e
		t.nodes[node.Name] = e
		t.graces.Set(&e.grace, now.Add(t.gracePeriod(e)))
		e.evict = hasEvictionTaint(node)
		e.unmarked = readyStatus(node) == corev1.ConditionUnknown
	}
	e.node = node
	if ready := condition(node, corev1.NodeReady); ready != nil && !ready.LastHeartbeatTime.Time.Equal(e.posted) {
		e.posted = ready.LastHeartbeatTime.Time
		t.alive(e, now)
	}
	t.dirty[node.Name] = struct{}{}
}

// Renew tells a node's lease. A renewal of an unknown node is forgotten: the node's
// own grace period starts when it is first observed.
func (t *Tracker) Renew(name string, renewed, now time.Time) {
	e := t.nodes[name]
	if e == nil || renewed.Equal(e.renewed) {
		return
	}
	e.renewed = renewed
	t.alive(e, now)
}

func (t *Tracker) alive(e *entry, now time.Time) {
	e.seen = now
	if e.lapsed {
		e.lapsed = false
		t.graces.Set(&e.grace, now.Add(t.gracePeriod(e)))
		t.dirty[e.node.Name] = struct{}{}
	}
}

// Forget tells that a node was deleted.
func (t *Tracker) Forget(name string) {
	e := t.nodes[name]
	if e == nil {
		return
	}
	delete(t.nodes, name)
	delete(t.dirty, name)
	t.graces.Stop(&e.grace)
	t.leaveZone(e)
}

// Tick lets time pass: nodes whose grace period ended lapse.
func (t *Tracker) Tick(now time.Time) {
	for timer := t.graces.Pop(now); timer != nil; timer = t.graces.Pop(now) {
		e := timer.Owner
		if due := e.seen.Add(t.gracePeriod(e)); due.After(now) {
			t.graces.Set(&e.grace, due) // there were signs since; look again then
			continue
		}
		e.lapsed = true
		e.unmarked = true
		t.dirty[e.node.Name] = struct{}{}
	}
}

// NextTick is when Tick and Ready next have something to do without any news.
func (t *Tracker) NextTick() (time.Time, bool) {
	next, _ := t.graces.Next()
	for _, z := range t.zones {
		if at, ok := z.nextEviction(); ok && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, !next.IsZero()
}

// Pending tells that Ready may have something to say before NextTick.
func (t *Tracker) Pending() bool { return len(t.dirty) > 0 }

// Ready returns the names of nodes about which something must be written, sorted. Ask
// Plan for what. Before the first call all existing nodes must have been observed.
func (t *Tracker) Ready(now time.Time) []string {
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		t.place(t.nodes[name])
	}
	t.judgeZones(now)
	for _, z := range t.zones {
		z.release(now, t.dirty)
	}
	var names []string
	for name := range t.dirty {
		if plan, ok := t.Plan(name, now); ok && !plan.Empty() {
			names = append(names, name)
		}
	}
	clear(t.dirty)
	slices.Sort(names)
	return names
}

// Plan tells what must be written about a node now; false if it is not known.
func (t *Tracker) Plan(name string, now time.Time) (Plan, bool) {
	e := t.nodes[name]
	if e == nil {
		return Plan{}, false
	}
	plan := makePlan(e.node, verdict{lapsed: e.lapsed, evict: e.evict}, now)
	plan.MarkPods = e.unmarked && (e.lapsed || readyStatus(e.node) == corev1.ConditionUnknown)
	return plan, true
}

// PodsMarked tells that no pod of the node is called ready any longer.
func (t *Tracker) PodsMarked(name string) {
	if e := t.nodes[name]; e != nil {
		e.unmarked = false
	}
}

// PodReady tells that a pod of the node is called ready. If the node is unknown it
// will have to be marked.
func (t *Tracker) PodReady(name string) {
	e := t.nodes[name]
	if e == nil || !e.lapsed || e.unmarked {
		return
	}
	e.unmarked = true
	t.dirty[name] = struct{}{}
}

func (t *Tracker) gracePeriod(e *entry) time.Duration {
	if e.renewed.IsZero() && condition(e.node, corev1.NodeReady) == nil {
		return t.cfg.StartupGracePeriod
	}
	return t.cfg.GracePeriod
}

// status is the node's readiness, Unknown once it has lapsed.
func (e *entry) status() corev1.ConditionStatus {
	return verdict{lapsed: e.lapsed}.status(e.node, corev1.NodeReady)
}
