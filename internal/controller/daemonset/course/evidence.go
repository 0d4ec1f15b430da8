package course

import (
	"cmp"
	"fmt"
	"time"
)

// weigh adds the node to the evidence against the target, or takes it off when it
// has healed before the limit was passed.
func (c *Course) weigh(n *node, in *input) {
	if !n.chosen.target {
		return // what is taken away cannot fail
	}
	d := &n.daemon
	has, failed := d.Revision == in.target, in.failed
	if !has && d.Revision != "" {
		return
	}
	available := has && !d.Since.IsZero()
	soaked := available && in.fault == "" && !in.soaked.After(in.now)
	switch {
	case failed && soaked && !c.targetFailed:
		c.acquit(n)
	case failed:
		c.recall(n, in, available)
	case soaked:
	case c.innocent(n, in, available):
	default:
		c.blameFor(n, in, available)
	}
}

// recall finds out once more why the target fails on a node that a status named.
func (c *Course) recall(n *node, in *input, available bool) {
	if c.state.failures[n.name].why == "" && in.fault == "" {
		c.blameFor(n, in, available)
	}
}

// blameFor counts a node as failed if the target fails on it.
func (c *Course) blameFor(n *node, in *input, available bool) {
	f := c.failing(n, in, available)
	if f.why != "" {
		c.blame(n, f)
	}
}

// refusedBeside: the pod that was to start beside the old one was refused, by the try
// that has just ended and by all for long enough.
func (c *Course) refusedBeside(n *node) {
	d := &n.daemon
	_, failed := c.state.failures[n.name]
	begun := n.change.begun
	if begun != nil && d.Revision == *begun && d.Revision != "" && d.Held && d.Refused != "" &&
		c.lasts(n) && !failed && c.changing && c.target(n) == c.state.target {
		c.blame(n, failure{BecauseRefused, d.Refused})
	}
}

// innocent: whatever is wrong with the node's daemon is not the target's doing. The
// node is out of order, its daemon was before, or it was never given the target.
func (c *Course) innocent(n *node, in *input, available bool) bool {
	return in.fault != "" || n.change.before == WasNotAvailable && !available ||
		n.daemon.Revision == "" && n.change.before == "" && !in.isNew && !in.joins
}

// failing says why the target fails on the node; nothing if it does not.
func (c *Course) failing(n *node, in *input, available bool) failure {
	d := &n.daemon
	switch {
	case d.NoRoom != "":
		if in.crowded && n.change.before != "" && d.Revision == in.target {
			return failure{BecauseNoRoom, "there is no room for it: " + d.NoRoom}
		}
	case in.restarted:
		return failure{cmp.Or(d.Cause, BecauseRestarts), fmt.Sprintf("%d restarts%s", c.restarts(n), colon(d.Trouble))}
	case d.Refused != "" && c.lasts(n):
		return failure{BecauseRefused, d.Refused}
	case available:
	case in.hopeless:
		return failure{cmp.Or(d.Cause, BecauseStart), cmp.Or(d.Trouble, "its containers cannot start")}
	case passed(in.late, in.now):
		return failure{BecauseLate, "not available in time" + colon(d.Trouble)}
	}
	return failure{}
}

// blame counts a node as failed by the target revision.
func (c *Course) blame(n *node, f failure) {
	c.state.failures[n.name], c.named = f, ""
	if known := len(c.state.failures); known > keptNames {
		c.state.most = max(c.state.most, known)
	}
}

// acquit takes a failure off: the node has healed before the limit was passed.
func (c *Course) acquit(n *node) {
	delete(c.state.failures, n.name)
	c.named = ""
}

// forgetFailures begins without evidence: the target is another one, or is tried anew.
func (c *Course) forgetFailures() {
	clear(c.state.failures)
	c.state.most, c.state.since, c.named = 0, time.Time{}, ""
}
