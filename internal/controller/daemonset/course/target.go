package course

import (
	"time"

	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// target is the revision that a pod made now on the node is to have; "" if none is
// to be made.
func (c *Course) target(n *node) string {
	switch {
	case !c.changing():
		return c.state.stable
	case c.hasFailed(c.state.target), c.follow != Followed:
		if f := c.failedRevision(c.state.target); f != nil && rollsBack(f) && c.state.stable != "" {
			return c.state.stable
		}
		if n.daemon.Revision == c.state.target || c.gone(n) {
			return c.state.target
		}
		return c.state.stable
	case c.isNew(), n.daemon.Revision == c.state.target, c.begun(n.step):
		return c.state.target
	}
	return c.state.stable
}

// changing reports whether there is another revision to go to than the stable one.
func (c *Course) changing() bool { return c.started && c.state.target != c.state.stable }

// isNew reports whether there is no revision that nodes could stay with.
func (c *Course) isNew() bool { return c.state.stable == "" }

// begun reports whether the step has begun.
func (c *Course) begun(s rolloutpolicy.Step) bool {
	return c.policy != nil && (c.isNew() || s.Compare(c.state.open) <= 0)
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

// recovers is until when the node's daemon may become available again by itself, after its node was
// out of order: as long as a start may take. Taking it takes a daemon away. Zero if it is not to be
// waited for.
func (c *Course) recovers(n *node) time.Time {
	if n.daemon.Available || n.daemon.Revision == "" || n.change.healed.IsZero() || c.policy == nil {
		return time.Time{}
	}
	if ends := n.change.healed.Add(c.policy.Failure.StartDeadline); ends.After(c.now) {
		return ends
	}
	return time.Time{}
}

// untouched: nothing was done yet on a node that is to get its first daemon.
func (c *Course) untouched(n *node, joins bool) bool {
	ch := &n.change
	return (c.isNew() || joins) && n.daemon.Revision == "" && !n.daemon.Ended && ch.begun == nil && !ch.taken
}

// overdue is when the second pod of the node does, or that of one that is to have none, if
// that is to come.
func (in *input) overdue() time.Time {
	if (in.daemon.Two || in.leaves) && in.lingers.After(in.now) {
		return in.lingers
	}
	return time.Time{}
}

// unmoved reports whether tries to change the node have failed for as long as a start may take. It is
// tried again, and holds up no other.
func (c *Course) unmoved(n *node) bool {
	held := n.change.held
	return c.policy != nil && !held.IsZero() && passed(held.Add(c.policy.Failure.StartDeadline), c.now)
}

// lingersFrom is when a pod that was to end counts as one that does not: after as long as a start may take.
func (c *Course) lingersFrom(n *node) time.Time {
	if n.daemon.EndsBy.IsZero() || c.policy == nil {
		return time.Time{}
	}
	return n.daemon.EndsBy.Add(c.policy.Failure.StartDeadline)
}

// superseded: the node has a revision that was the target once and did not fail. It
// keeps it until its step begins.
func (c *Course) superseded(n *node, want string) bool {
	r := n.daemon.Revision
	return c.changing() && want == c.state.stable && r != c.state.target && !c.hasFailed(r) && !c.hasFailed(c.state.target)
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// clock writes a time for people.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
