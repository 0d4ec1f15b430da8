package course

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/loop/clocktest"
)

// hostile is what may be wrong in a world beside bad revisions and nodes.
type hostile struct {
	t *rapid.T
	// off is by how much the controller's clock is ahead of the API's.
	off time.Duration
	// set: somebody has set that clock since the last tick, and what was foretold by it may come sooner or later.
	set bool
	// dieAfter is after how many changes of a turn the controller dies; 0 for never.
	dieAfter int
	// slow has what was let begin, which is begun, be done a moment later.
	slow  bool
	begun map[string]Permit
	// failed are the revisions that were written down as failed and that nobody has tried again since.
	failed map[string]bool
	// epoch counts how often the evidence began again.
	epoch int
	since time.Time
	of    *Course
	joins int
}

// hostileMachine is what a node's clock and its pod's ups and downs need.
type hostileMachine struct {
	// skew is by how much the node's clock is ahead of the API's.
	skew time.Duration
	// readySince is when the pod became ready, by the node's clock, and seen when the controller saw that, by its own.
	readySince, seen time.Time
	// held is until when nothing is tried again, going since when its pod is on its way out.
	held, going time.Time
	// joined is when the node came, if it came in the place of another.
	joined time.Time
	// flaps: the pod becomes unready every few seconds.
	flaps bool
	fetchingMachine
}

// lingers: the node's pod was to end long ago, and may still run for all that is known.
func (w *world) lingers(m *machine) bool {
	return w.hostile != nil && m.daemon.Ending != "" && !w.now.Before(m.going.Add(w.policy.Failure.StartDeadline))
}

// clock is the controller's.
func (w *world) clock() time.Time {
	if w.hostile == nil {
		return w.now
	}
	return clocktest.At(w.now.Add(w.off), w.now.Sub(epoch))
}

// epoch is before all times of a world.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// unready has the newest pod be not ready, nor on its way.
func (m *machine) unready() {
	m.ready, m.readySince, m.daemon.Since, m.daemon.Comes = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

func (m *machine) hold(now time.Time) { m.daemon.Held, m.held = true, now.Add(3*time.Second) }

// tick tells the course of the time. Nothing changes before it said that something would.
func (w *world) tick() {
	c := w.course
	if w.hostile == nil || w.set {
		tick(c, w.clock())
		w.hasTicked()
		return
	}
	next, any := c.NextTick()
	if any && !next.After(c.now) {
		w.t.Fatalf("at %s the next tick is to be at %s", c.now, next)
	}
	phase, message := c.Phase()
	c.Moved()
	tick(c, w.clock())
	is, says := c.Phase()
	if moved := c.Moved(); (!any || next.After(c.now)) && (is != phase || says != message || len(moved) > 0) {
		w.t.Fatalf("the next tick is to be at %s, and at %s %s: %s is %s: %s, and %s moved", next, c.now, phase, message, is, says, moved)
	}
}

func (w *world) hasTicked() {
	if w.hostile != nil {
		w.set = false
	}
}

// tryAgain forgets what the API refused: that was about something else.
func (w *world) tryAgain() {
	for _, name := range w.names() {
		if m := w.nodes[name]; w.hostile != nil && (m.daemon.Held || m.daemon.Refused != "") {
			m.daemon.Held, m.daemon.Refused = false, ""
			w.course.SetDaemon(name, m.daemon)
		}
	}
}

// asOfNow is the permit by what the course says after it: another target, if that has turned. It reports whether the
// change is still under way.
func (w *world) asOfNow(p Permit) (Permit, bool) {
	n := w.course.nodes[p.Node]
	p.To = w.target(p.Node)
	if w.course.leaves(n, p.To) {
		p.To = ""
	}
	return p, n.change.begun != nil
}

// isSlow: what was let begin is done a moment later, if it is to be done then.
func (w *world) isSlow() bool { return w.hostile != nil && w.slow }

// dies has the controller die in the middle of a turn.
func (w *world) dies(after int) bool {
	if w.hostile == nil || w.dieAfter == 0 || after+1 < w.dieAfter {
		return false
	}
	w.dieAfter = 0
	w.forgetBegun()
	w.crash()
	return true
}

// What may become of a pod beside an error that it restarts with.
const (
	hangs     = "it never becomes ready"
	noImage   = "its image cannot be pulled"
	noRoom    = "there is no room"
	kills     = "it kills its node"
	upAndDown = "it becomes unready all the time"
)

var ills = []string{"it restarts", hangs, noImage, noRoom, kills, upAndDown}

// comesUpIll is the moment in which a pod becomes ready, or does not.
func (w *world) comesUpIll(name, ill string) {
	m := w.nodes[name]
	d := &m.daemon
	switch ill {
	case "", kills, upAndDown:
		m.readySince, m.seen = w.now.Add(m.skew), w.clock()
		w.look(m)
		m.flaps = m.flaps || ill == upAndDown
		if ill == kills {
			w.fault(name, "the node does not answer", true)
		}
	case hangs:
	case noImage:
		d.Trouble, d.Certain = ill, true
	case noRoom:
		d.NoRoom, d.Bound = ill, time.Time{}
	default:
		d.Restarts, d.Trouble = 5, ill
	}
}

// look works out what the controller makes of a pod that is ready, as the matrix does.
func (w *world) look(m *machine) {
	d := &m.daemon
	if d.Revision == "" || m.readySince.IsZero() || m.fault != "" && !m.cordoned() {
		return
	}
	from := m.readySince
	if from.Before(d.Made) {
		from = d.Made
	}
	if from.After(m.seen) {
		from = m.seen
	}
	from = m.seen.Add(from.Sub(m.seen)) // as the clock of this process goes on
	at := from.Add(time.Duration(w.ds.MinReadySeconds) * time.Second)
	d.Since, d.Comes, d.Available = time.Time{}, at, d.Two
	if !at.After(w.clock()) {
		d.Since, d.Comes, d.Available, d.Two = at, time.Time{}, true, false
	}
}

// cordoned: the node is out of order since somebody wants it, and its pod runs.
func (m *machine) cordoned() bool { return m.fault == cordon || m.maintained }

const cordon = "somebody drains it"

// moment is what happens to a node on which nothing is under way.
func (w *world) moment(name string) {
	m := w.nodes[name]
	if p, has := w.begun[name]; has {
		w.goesOn(p)
		return
	}
	was := m.daemon
	if m.daemon.Held && !m.held.After(w.now) {
		m.daemon.Held = false
	}
	if m.flaps && !m.readySince.IsZero() && w.now.Unix()%7 == 0 {
		m.daemon.Available = m.daemon.Two
		m.unready()
		m.ready = w.now.Add(2 * time.Second)
	}
	w.look(m)
	if m.daemon != was {
		w.course.SetDaemon(name, m.daemon)
	}
}

// forgetBegun drops what was let begin and not done: its daemons are where they were.
func (w *world) forgetBegun() {
	for name := range w.begun {
		delete(w.taken, name)
	}
	clear(w.begun)
}

// goesOn does what was let begin a moment ago, if it is still under way.
func (w *world) goesOn(p Permit) {
	m := w.nodes[p.Node]
	p, begun := w.asOfNow(p)
	switch {
	case !begun, m.daemon.Revision != p.From:
		delete(w.begun, p.Node)
	case p.From == "" && w.course.Order(p.Node).Create && p.To != "":
		delete(w.begun, p.Node)
		w.create(p.Node)
		w.course.SetDaemon(p.Node, m.daemon)
	case p.From != "":
		delete(w.begun, p.Node)
		w.begin(p)
	}
}

// shifted has another process go on, whose clock may be another.
func (w *world) shifted(t *rapid.T) {
	if rapid.Bool().Draw(t, "another clock") {
		w.off = drawOff(t)
	}
	w.forgetBegun()
	for _, m := range w.nodes {
		m.seen = w.clock()
		w.look(m)
	}
}

func drawOff(t *rapid.T) time.Duration {
	return time.Duration(rapid.SampledFrom([]int{0, 0, -3600, 3600, -90, 90, -7, 7}).Draw(t, "off")) * time.Second
}

// setMinReady changes what being available asks for, of all pods.
func (w *world) setMinReady(seconds int32) {
	w.ds.MinReadySeconds = seconds
	w.tellRules()
	for _, m := range w.nodes {
		if d := &m.daemon; m.readySince.IsZero() && !d.Since.IsZero() && !d.Two { // it was there in the beginning
			m.readySince, m.seen = d.Since, w.clock()
		}
	}
	for _, name := range w.names() {
		w.moment(name)
	}
	w.noteTaken(nil)
}

// made checks, from the status, that the node may be given the revision.
func (w *world) made(name, revision string) {
	s := w.course.Status()
	failed := w.failed[revision] || slices.Contains(s.EarlierFailures, revision) ||
		slices.ContainsFunc(s.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == revision })
	forward := revision == s.TargetRevision && revision != s.StableRevision
	switch {
	case failed:
		w.t.Fatalf("%s is given %s, which has failed; %s: %s", name, revision, s.Phase, s.Message)
	case s.Phase == v1alpha1.PhaseRolledBack && revision != s.StableRevision:
		w.t.Fatalf("%s is given %s, and nodes go back to %s", name, revision, s.StableRevision)
	case forward && s.Step != "" && !w.stepHasBegun(name, &s):
		w.t.Fatalf("%s is given %s before its step; %s is under way", name, revision, s.Step)
	case forward && s.StableRevision != "" && s.Step == "":
		w.t.Fatalf("%s is given %s, and no step is under way: %s: %s", name, revision, s.Phase, s.Message)
	}
}

// stepHasBegun finds the node's step from the labels of all nodes, and compares it with that of the status.
func (w *world) stepHasBegun(name string, s *v1alpha1.DaemonSetRolloutStatus) bool {
	fleet := rolloutpolicy.NewFleet(w.policy)
	for _, o := range w.names() {
		has := cmp.Or(w.nodes[o].daemon.Revision, w.nodes[o].daemon.Ending)
		if slices.ContainsFunc([]string{w.course.Meanwhile(), s.TargetRevision, has}, func(r string) bool { return r != "" && w.Selects(r, o) }) {
			fleet.Set(o, w.nodes[o].node(o).Labels)
		}
	}
	at, has := fleet.Step(name)
	underWay, known := w.policy.StepNamed(s.Step)
	return has && known && at.Compare(underWay) <= 0
}

// remember keeps which revisions were written down as failed.
func (w *world) remember() {
	if w.hostile == nil {
		return
	}
	for _, f := range w.stored.FailedRevisions {
		w.failed[f.Revision] = true
	}
	for _, revision := range w.stored.EarlierFailures {
		w.failed[revision] = true
	}
}

// begunAgain counts how often the evidence began again within a process.
func (w *world) begunAgain() int {
	if w.hostile == nil {
		return 0
	}
	if c := w.course; w.of != c || !w.since.Equal(c.state.since) {
		w.epoch += one(w.of == c)
		w.of, w.since = c, c.state.since
	}
	return w.epoch
}

// replaceOne has one node leave and another join.
func (w *world) replaceOne() {
	names := w.names()
	w.removeNode(names[(w.joins*7)%len(names)])
	w.joins++
	name := fmt.Sprint("join-", w.joins)
	w.addNode(name, map[string]string{"zone": fmt.Sprint("z", w.joins%2)}, "")
	w.nodes[name].joined = w.now
}
