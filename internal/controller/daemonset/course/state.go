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
	// Kept: the target fails on it, such as that its pod is refused, and its old daemon is there and available.
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

// input is all that a node's state follows from.
type input struct {
	now    time.Time
	daemon *Daemon
	fault  string
	// want is the revision that a pod made now is to have, "" if none is to be made; leaves
	// tells that the node is to have no daemon by its rules.
	want   string
	leaves bool
	// target is where the change goes, back that nodes return to the stable revision.
	target         string
	back, changing bool
	// isNew: there is no revision that nodes could stay with. first: nothing was done yet on a node that
	// is to get its first daemon. joins: it gets that by the target's rules. departs: these take it away.
	isNew, first, joins, departs bool
	// begun: its change was let begin. failed: the target counts as failed on it.
	begun, failed bool
	// crowded: the scheduler has said its word. restarted: the pod has, too often. hopeless: waiting for
	// it will not help. unmoved: every try to change the node has failed for long.
	crowded, restarted, hopeless, unmoved bool
	// late is when the pod is to be available, lingers when the old one counts as not
	// ending, soaked when it has been available for long enough, patience until when that
	// may take, room until when the scheduler may still find some, sure when the pod's trouble counts as
	// lasting, recovers until when it may heal by itself. Zero times mean never.
	late, lingers, soaked, patience, room, sure, recovers time.Time
}

func passed(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

func (in *input) has() bool { return in.want != "" && in.daemon.Revision == in.want }

func (in *input) up() bool { return in.has() && !in.daemon.Since.IsZero() }

// stuck reports whether the pod will not come up in time.
func (in *input) stuck() bool { return in.hopeless || in.restarted || passed(in.late, in.now) }

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
	case d.Revision == "":
		return Absent
	case d.Bound.IsZero():
		return Unbound
	}
	return Starting
}

// failing is the state of a node on which the target fails.
func (in *input) failing() State {
	if in.daemon.Available && !in.has() {
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
	case in.unmoved:
		return Unmoved
	case in.want == "", in.daemon.Available:
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
	}
	return time.Time{}
}

// reasons are those that say the same of each node.
var reasons = map[State]string{
	Unmoved:  "the API does not let its pod be replaced; it is tried again",
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
		return cmp.Or(d.Trouble, "its daemon does not become available")
	case Crowded:
		return d.NoRoom
	case Faulty:
		return in.fault
	case Lingering:
		return "its old pod was to end by " + clock(d.EndsBy) + ", and is still there"
	}
	return reasons[s]
}
