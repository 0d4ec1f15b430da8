package course

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// world plays the nodes and the controller around a course: what it takes is deleted,
// what is missing is made with the node's target, and comes up or not as the world
// is told.
type world struct {
	now    time.Time
	course *Course
	ds     DaemonSet
	policy *rolloutpolicy.Policy
	nodes  map[string]*machine
	// bad says for a revision what becomes of it on a node: "" comes up.
	bad func(revision, node string) string
	// starts is how long a daemon takes to come up.
	starts time.Duration
	// given counts the pods made by revision and node.
	given map[string]map[string]int
	check func(p Permit)
	// rules says which nodes a revision selects; all, if it is not in there. revisions are all
	// that there were.
	rules     map[string]func(node string) bool
	revisions map[string]bool
	// stops is how long a daemon takes to go.
	stops  time.Duration
	sorted []string // names of the nodes; nil if these have changed
	// stored is the status that was written last.
	stored v1alpha1.DaemonSetRolloutStatus
	stuck  string // the node whose old pod does not end
	// refuses is the revision whose pods the API refuses.
	refuses string
	// unreadable revisions are gone from the API.
	unreadable map[string]bool
	// taken are nodes whose available daemon a change took away, in the direction way.
	taken map[string]bool
	way   string
	// hostile is what TestRandomFleets adds; nil elsewhere.
	*hostile
}

type machine struct {
	labels map[string]string
	fault  string
	silent bool
	since  time.Time
	// maintained: the fault is that somebody works on the node.
	maintained bool

	daemon standing.Daemon
	ready  time.Time // when the pod on its way is available; zero if there is none
	ends   time.Time // when the pod that goes is gone
	out    bool      // the node changed so that no revision selects it
	object *corev1.Node
	hostileMachine
}

// The labels by which placement rules of tests go.
const (
	hostLabel = "test/host"
	outLabel  = "test/out"
)

// node is what placement rules read of the machine.
func (m *machine) node(name string) *corev1.Node {
	if m.object != nil && len(m.object.Labels) == len(m.labels)+1+one(m.out) {
		return m.object
	}
	labels := maps.Clone(m.labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[hostLabel] = name
	if m.out {
		labels[outLabel] = "out"
	}
	m.object = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	return m.object
}

func newWorld() *world {
	w := &world{
		now: time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC), nodes: map[string]*machine{},
		bad: func(string, string) string { return "" }, starts: 2 * time.Second, given: map[string]map[string]int{},
		rules: map[string]func(string) bool{}, revisions: map[string]bool{}, unreadable: map[string]bool{},
		taken: map[string]bool{},
	}
	w.course = New()
	return w
}

// Selects is what the placement rules of revisions say.
func (w *world) Selects(revision, node string) bool {
	m := w.nodes[node]
	if m != nil && !m.out && len(w.rules)+len(w.unreadable) == 0 {
		return true // without asking, which is quick
	}
	return m != nil && w.ds.Selects(revision, m.node(node), m.daemon.Occupied())
}

// Readable reports whether nobody has deleted the revision. The newest is the DaemonSet's own template.
func (w *world) Readable(revision string) bool {
	return revision == w.ds.Newest || !w.unreadable[revision]
}

// compile makes the placement rules of a revision.
func (w *world) compile(revision string) *placement.Rules {
	terms := []corev1.NodeSelectorRequirement{{Key: outLabel, Operator: corev1.NodeSelectorOpDoesNotExist}}
	if rule := w.rules[revision]; rule != nil {
		names := []string{"none"}
		for _, name := range w.names() {
			if rule(name) {
				names = append(names, name)
			}
		}
		terms = append(terms, corev1.NodeSelectorRequirement{Key: hostLabel, Operator: corev1.NodeSelectorOpIn,
			Values: names})
	}
	return placement.Compile(&corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: terms}}}}}})
}

// tellRules tells the course of the DaemonSet and the rules of all its revisions.
func (w *world) tellRules() {
	w.revisions[w.ds.Newest] = true
	w.ds.Rules, w.ds.Earlier = w.compile(w.ds.Newest), &placement.Revisions{ByRevision: map[string]*placement.Rules{}}
	for revision := range w.revisions {
		if revision != w.ds.Newest && w.Readable(revision) {
			w.ds.Earlier.ByRevision[revision] = w.compile(revision)
		}
	}
	w.course.SetDaemonSet(w.ds)
}

// target is what a pod made now on the node is to have.
func (w *world) target(name string) string { return w.course.target(w.course.nodes[name]) }

// names of the machines, in order.
func (w *world) names() []string {
	if len(w.sorted) != len(w.nodes) {
		w.sorted = slices.Sorted(maps.Keys(w.nodes))
	}
	return w.sorted
}

func (w *world) addNode(name string, labels map[string]string, revision string) {
	m := &machine{labels: labels, daemon: standing.Daemon{}}
	if revision != "" {
		m.daemon = standing.Daemon{Revision: revision, Available: true, Since: w.now.Add(-time.Hour),
			Made: w.now.Add(-time.Hour), Bound: w.now.Add(-time.Hour)}
	}
	w.nodes[name], w.sorted = m, nil
	w.revisions[revision] = true
	if len(w.rules) > 0 && w.ds.Rules != nil {
		w.tellRules()
	}
	w.tell(name)
}

func (w *world) removeNode(name string) {
	delete(w.nodes, name)
	w.sorted = nil
	w.course.DeleteNode(name)
}

// fault puts a node out of order, or back with "".
func (w *world) fault(name, why string, silent bool) {
	m := w.nodes[name]
	m.fault, m.silent, m.since, m.maintained = why, silent, w.now, false
	if !silent {
		m.since = m.since.Add(m.skew)
	}
	if why != "" {
		m.daemon.Available, m.daemon.Two = false, false
		m.unready()
	} else if m.daemon.Revision != "" {
		m.ready = w.now.Add(w.starts)
	}
	w.tell(name)
}

// maintain has somebody begin to work on a node, whose daemon may go on or not.
func (w *world) maintain(name string, stops bool) {
	m := w.nodes[name]
	m.fault, m.silent, m.since, m.maintained = inMaintenance, false, time.Time{}, true
	if stops {
		m.daemon.Available, m.daemon.Two = false, false
		m.unready()
	}
	w.tell(name)
}

// inMaintenance is what is said of a node on which somebody works.
const inMaintenance = "in maintenance: DrainInProgress"

func (w *world) tell(name string) {
	m := w.nodes[name]
	w.course.SetNode(name, Node{
		Object: m.node(name), Fault: m.fault, Silent: m.silent, Since: m.since,
		Maintained: m.maintained && m.fault != "",
	})
	w.course.SetDaemon(name, m.daemon)
}

// pass lets time go by in steps of a second, passIn in such steps.
func (w *world) pass(d time.Duration) { w.passIn(time.Second, d) }

func (w *world) passIn(step, d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(step)
		w.tick()
		w.act(1 << 20)
	}
}

// take has changes begin, and writes where the rollout stands.
func (w *world) take(most int) []Permit {
	out := w.course.Take(most)
	w.store()
	return out
}

// store writes where the rollout stands.
func (w *world) store() {
	w.stored = w.course.Status()
	w.remember()
}

// act does what the controller and the nodes do in a moment.
func (w *world) act(most int) {
	for i, p := range w.take(most) {
		if w.hostile != nil {
			now, begun := w.asOfNow(p)
			if !begun {
				continue
			}
			p = now
		}
		if w.check != nil {
			w.check(p)
		}
		if w.isSlow() {
			w.begun[p.Node] = p
		} else {
			w.begin(p)
		}
		if w.dies(i) {
			return
		}
	}
	for _, name := range w.names() {
		m := w.nodes[name]
		target := w.target(name)
		switch {
		case name == w.stuck:
		case m.daemon.Ending != "" && !m.ends.After(w.now) && m.fault == "":
			m.daemon = standing.Daemon{}
			w.course.SetDaemon(name, m.daemon)
		case m.daemon.Ending != "":
		case m.daemon.Revision != "" && !w.Selects(target, name) && !w.Selects(m.daemon.Revision, name):
			m.daemon = standing.Daemon{} // the node's own change goes at once
			m.unready()
			w.course.SetDaemon(name, m.daemon)
		case m.daemon.Revision == "" && !m.daemon.Held && w.course.Order(name).Create && w.Selects(target, name) &&
			m.fault == "" && w.Readable(target):
			w.create(name)
			w.course.SetDaemon(name, m.daemon)
		case !m.ready.IsZero() && !m.ready.After(w.now) && m.fault == "":
			m.ready = time.Time{}
			w.comeUp(name)
			w.course.SetDaemon(name, m.daemon)
		case w.hostile != nil:
			w.moment(name)
		}
		if w.hostile != nil || w.ds.Fetches {
			w.fetch(name)
		}
	}
	w.noteTaken(nil)
}

// begin does what a permit allows.
func (w *world) begin(p Permit) {
	m := w.nodes[p.Node]
	was := m.daemon
	switch {
	case w.ds.Surge && was.Available && p.To != "" && p.From != "" && p.To == w.refuses && w.hostile != nil:
		m.daemon.Refused, m.daemon.RefusedOf = "the API refuses its pod", p.To
		m.hold(w.now)
	case w.ds.Surge && was.Available && p.To != "":
		m.unready()
		m.daemon = standing.Daemon{Available: true, Two: true}
		w.create(p.Node)
	case p.From == "":
		m.daemon = standing.Daemon{}
		m.unready()
		w.create(p.Node)
	default:
		m.daemon = standing.Daemon{}
		m.unready()
		m.ends = w.now.Add(w.stops)
		if p.To == "" || w.hostile != nil && w.stops > 0 {
			m.daemon = standing.Daemon{Ended: true, Ending: p.From}
		}
		if w.hostile != nil && m.daemon.Ended {
			m.going, m.daemon.EndsBy, m.daemon.Before = w.now, w.now.Add(w.stops), was.Before
			if was.Available {
				m.daemon.Was = standing.WasAvailable
			}
		}
	}
	w.course.SetDaemon(p.Node, m.daemon)
}

// comeUp has the node's pod come up, or not.
func (w *world) comeUp(name string) {
	m := w.nodes[name]
	switch why := w.bad(m.daemon.Revision, name); {
	case w.hostile != nil:
		w.comesUpIll(name, why)
	case why != "":
		m.daemon.Restarts, m.daemon.Trouble = 5, why
	default:
		m.daemon.Available, m.daemon.Since, m.daemon.Two = true, w.now, false
	}
}

func (w *world) create(name string) {
	target := w.target(name)
	if target == "" {
		return
	}
	m := w.nodes[name]
	if target == w.refuses {
		m.daemon.Refused, m.daemon.RefusedOf = "the API refuses its pod", target
		if w.hostile != nil {
			m.hold(w.now)
		}
		return
	}
	if w.hostile != nil {
		w.made(name, target)
		m.unready()
		m.daemon.Refused, m.daemon.Held = "", false
	}
	m.daemon.Revision, m.daemon.Made, m.daemon.Bound, m.ready = target, w.now, w.now, w.now.Add(w.starts)
	m.daemon.Before = w.course.Before(name)
	if w.given[target] == nil {
		w.given[target] = map[string]int{}
	}
	w.given[target][name]++
}

// on counts the nodes that have a pod of the revision.
func (w *world) on(revision string) (n int) {
	for _, m := range w.nodes {
		if m.daemon.Revision == revision {
			n++
		}
	}
	return n
}

// fleet adds zones*racks*each nodes named by zone, rack and number.
func (w *world) addFleet(zones, racks, each int, revision string) {
	for z := range zones {
		for r := range racks {
			for i := range each {
				w.addNode(fmt.Sprintf("z%d-r%d-%02d", z, r, i),
					map[string]string{"zone": fmt.Sprintf("z%d", z), "rack": fmt.Sprintf("z%d-r%d", z, r)}, revision)
			}
		}
	}
}

func (w *world) start(p *rolloutpolicy.Policy, ds DaemonSet) {
	w.policy, w.ds = p, ds
	tick(w.course, w.clock())
	w.course.SetPolicy(p, Followed, "")
	w.tellRules()
	status := w.course.Status()
	status.TargetRevision, status.StableRevision = "", ""
	w.course.Start(&status)
}

// update gives the DaemonSet another template.
func (w *world) update(revision string) {
	w.ds.Newest = revision
	w.tryAgain()
	w.tellRules()
	w.noteTaken(nil) // nodes that lost their daemon may be ones that are to have none
}

// tick moves time forward and does what is due.
func tick(c *Course, now time.Time) {
	if c.Reach(now) {
		c.Due()
	}
}
