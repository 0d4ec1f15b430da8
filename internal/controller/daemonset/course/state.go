package course

import (
	"cmp"
	"time"

	"github.com/everynode/everynode/internal/deadline"
)

// State is what a node does in a rollout. Exactly one holds for each node.
type State uint8

// The states.
const (
	// Outside: no revision's rules want a daemon there.
	Outside State = iota
	// LeftOut: it has no daemon, and is to have none.
	LeftOut
	// Untouched: it has what it had before, or waits for its first daemon.
	Untouched
	// Broken: untouched, and its daemon is not available.
	Broken
	// Unmoved: untouched, since every try to change it has failed for long.
	Unmoved
	// Taken: its change was let begin, and its old pod is still there.
	Taken
	// Absent: its old pod is gone or going, and the next one is not made.
	Absent
	// Unbound: the next pod is made and not bound.
	Unbound
	// Starting: the pod that it is to have is on its way up.
	Starting
	// Soaking: that pod is available, not yet for long enough.
	Soaking
	// Soaked: it has what it is to have.
	Soaked
	// Leaving: its daemon is being taken away for good.
	Leaving
	// Failed: the target fails on it, or did and has not been well for long enough.
	Failed
	// Kept: the target fails on it, such as that its pod is refused, and it has another daemon that is available.
	Kept
	// Stuck: the pod does not come up, and the target is not to blame.
	Stuck
	// Crowded: the scheduler finds no room for the pod.
	Crowded
	// Faulty: the node itself is out of order.
	Faulty
	// Lingering: its old pod was to end and does not.
	Lingering
	// Flapping: its pod keeps becoming ready again, for longer than a soak may take.
	Flapping

	stateCount
)

// Cause is who made a node's daemon unavailable.
type Cause uint8

// The causes.
const (
	// Nobody: the rollout did not.
	Nobody Cause = iota
	// Us: the rollout took an available daemon away, and none has been available since.
	Us
	// UnderWay: the rollout is at it.
	UnderWay

	causeCount
)

// classify gives the state of a node that some revision's rules want.
func classify(in *input) State {
	d := in.daemon
	switch {
	case in.leaves:
		return classifyLeaving(in)
	case in.failed && !(in.up() && in.back):
		return in.failing()
	case in.up():
		return classifyUp(in)
	case in.fault != "":
		return Faulty
	case in.has() && in.crowded:
		return Crowded
	case !in.has() && (in.want == "" || d.Revision != ""):
		return classifyOutdated(in)
	case d.Revision == "" && passed(in.lingers, in.now):
		return Lingering
	case in.stuck():
		return Stuck
	case in.first:
		return Untouched
	case in.refused:
		return Stuck
	case d.Revision == "":
		return Absent
	case d.Bound.IsZero():
		return Unbound
	}
	return Starting
}

// failing is the state of a node on which the target fails.
func (in *input) failing() State {
	if in.daemon.Available && in.daemon.Revision != in.target {
		return Kept
	}
	return Failed
}

// classifyLeaving is for a node that is to have no daemon.
func classifyLeaving(in *input) State {
	d := in.daemon
	switch {
	case d.empty() && in.joins && !in.back:
		return Untouched // the target is not for it yet
	case d.empty():
		return LeftOut
	case in.failed && d.Revision != "":
		return in.failing()
	case in.fault != "":
		return Faulty
	case d.Revision == "" && passed(in.lingers, in.now):
		return Lingering
	case in.begun, d.Revision == "":
		return Leaving
	case passed(in.unmoved, in.now):
		return Unmoved
	case !d.Available:
		return Broken
	}
	return Untouched
}

// classifyUp is for a node whose pod is the one that is to be there, and available.
func classifyUp(in *input) State {
	switch {
	case in.daemon.Revision != in.target && !in.back:
		return Untouched // the target is not for it yet
	case !in.changing, in.back, !in.soaked.After(in.now):
		return Soaked
	case !in.patience.After(in.now):
		return Flapping
	}
	return Soaking
}

// classifyOutdated is for a node whose pod has another revision.
func classifyOutdated(in *input) State {
	switch {
	case in.begun:
		return Taken
	case passed(in.unmoved, in.now):
		return Unmoved
	case in.daemon.Available, in.daemon.Revision == "":
		return Untouched
	}
	return Broken
}

// wake is when the state may change by time alone; zero if it does not.
func (in *input) wake(s State) time.Time {
	switch s {
	case Soaking:
		return deadline.Sooner(in.soaked, in.patience)
	case Flapping, Failed, Kept:
		if !in.daemon.Since.IsZero() {
			return in.soaked
		}
	case Starting:
		return in.late
	case Absent:
		return in.lingers
	case Unbound:
		return in.room
	case Untouched, Broken:
		return in.unmoved
	}
	return time.Time{}
}

// reasons are those that say the same of each node.
var reasons = map[State]string{
	Unmoved:  "the API does not let its pod go; it is tried again",
	Unbound:  "its pod is not bound to it yet",
	Starting: "its daemon starts",
	Flapping: "its pod keeps becoming ready again, for longer than the soak may take",
}

// reason says what there is to say about a node in the state, beside what it waits for.
func (c *Course) reason(n *node, in *input, s State) string {
	d := in.daemon
	switch s {
	case LeftOut:
		return "revision " + in.want + " leaves it out"
	case Broken:
		return "its daemon was not available before: " + cmp.Or(d.Trouble, "its pod is not ready")
	case Taken:
		return "its pod of revision " + d.Revision + " is being replaced"
	case Absent:
		return cmp.Or(d.Refused, d.Trouble, "it gets a pod")
	case Soaking:
		return "soaks until " + clock(in.soaked)
	case Leaving:
		return cmp.Or(d.Trouble, "its pod is taken away")
	case Failed, Kept:
		return c.state.failures[n.name].why
	case Stuck:
		return cmp.Or(d.Refused, d.Trouble, "its daemon does not become available")
	case Crowded:
		return d.NoRoom
	case Faulty:
		return in.fault
	case Lingering:
		return "its old pod was to end by " + clock(d.EndsBy) + ", and is still there"
	}
	return reasons[s]
}

// judge gives a node's standing. It changes nothing.
func (c *Course) judge(n *node) standing {
	in := c.input(n)
	return c.judgeBy(n, &in)
}

// judgeBy is judge where the input is known already.
func (c *Course) judgeBy(n *node, in *input) standing {
	if !n.chosen.any() {
		target := cmp.Or(c.state.stable, c.state.target)
		return standing{state: Outside, order: Order{Target: target, Changing: in.changing}}
	}
	v := standing{state: classify(in), order: c.order(n, in)}
	v.cause, v.reason, v.wake = c.cause(n, in), c.reason(n, in, v.state), in.wake(v.state)
	if !v.wake.After(c.now) {
		v.wake = time.Time{}
	}
	v.wake = deadline.Sooner(v.wake, in.overdue())
	v.wake = deadline.Sooner(deadline.Sooner(v.wake, in.sure), in.recovers)
	c.count(n, in, &v)
	return v
}

// cause is by whose doing the node's daemon is unavailable. Of a node that nobody hears of it is
// nobody's: whatever began there, it died.
func (c *Course) cause(n *node, in *input) Cause {
	d := &n.daemon
	switch {
	case in.begun, d.Unsure, d.Two && in.fault == "" && !passed(in.lingers, in.now):
		return UnderWay
	case n.change.taken && !n.fact.Silent:
		return Us
	}
	return Nobody
}

// count adds what the node counts as.
func (c *Course) count(n *node, in *input, v *standing) {
	d := &n.daemon
	down := !d.Available && !(in.leaves && d.empty()) || in.begun && (!c.ds.Surge || in.leaves)
	if in.first && in.fault == "" {
		down = false // nothing is taken away from a node that never had the daemon
	}
	e := v.state.counts(v.cause, in.back)
	mayChange, free := c.candidate(n, in)
	v.free = free
	e = e.with(Given, in.failed || d.Revision == in.target).
		with(Failure, in.failed).with(Sick, in.fault != "").with(Down, down).
		with(Removed, v.state == LeftOut && in.want == in.target && in.departs)
	held := mayChange && !free && n.group.stuck()
	if held {
		e = e&^the(Passed) | the(Excused)
	}
	if n.change.late && (v.state == Soaking || v.state.Verdict() == Changing) {
		e = e&^the(Soaks) | the(Late)
	}
	excused := e.has(Excused)
	v.counts = e.with(Held, mayChange && excused).with(Pending, mayChange && !excused).
		with(Stays, down && c.staysDown(in, v.state, e))
}

// staysDown reports whether the node's daemon, which is not available, will not be for as long as its own step has not
// begun, or nobody mends what is wrong. Where there is no revision to go back to, a daemon that is lost is not made
// again before then.
func (c *Course) staysDown(in *input, s State, e effects) bool {
	d := in.daemon
	return !d.Comes.After(c.now) &&
		(e.has(Fault) || s.Verdict() == FailedRevision && !in.back || in.want == "" && d.empty())
}

// candidate reports whether the node's pod is to be replaced, or made where that asks
// for leave, and whether that makes nothing unavailable. Nothing changes towards a revision
// whose template cannot be read.
func (c *Course) candidate(n *node, in *input) (change, free bool) {
	d := &n.daemon
	free = !d.Available && in.recovers.IsZero()
	switch {
	case !c.started || in.want == "" || in.has() || in.begun || d.Held || in.fault != "" || c.ds.Of(in.want) == nil:
		return false, false
	case d.Revision == "":
		return (in.isNew || in.joins) && !in.leaves, in.isNew || n.change.taken
	case !free && c.superseded(n, in.want):
		return false, false
	}
	return true, free
}

// overdue is when the second pod of the node does, or that of one that is to have none, if
// that is to come.
func (in *input) overdue() time.Time {
	if (in.daemon.Two || in.leaves) && in.lingers.After(in.now) {
		return in.lingers
	}
	return time.Time{}
}

func (c *Course) order(n *node, in *input) Order {
	want := in.want
	return Order{
		Target: want, Change: in.begun && want != "", Changing: in.changing,
		Create: c.started && want != "" && (in.begun || !in.isNew && !in.joins || want != in.target),
	}
}
