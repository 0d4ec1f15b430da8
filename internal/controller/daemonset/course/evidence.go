package course

import (
	"cmp"
	"fmt"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// weigh adds the node to the evidence against the target, or takes it off when it
// has healed before the limit was passed.
func (c *Course) weigh(n *node, in *standing.Input) {
	if !n.chosen.target {
		return // what is taken away cannot fail
	}
	d := &n.daemon
	has, failed := d.Revision == in.Target, in.Failed
	if !has && d.Revision != "" {
		c.weighFetch(n, in)
		return
	}
	available := has && !d.Since.IsZero()
	soaked := available && in.Fault == "" && !in.Soaked.After(in.Now)
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

// weighFetch counts a node as failed that is to change, and cannot have the images by the target's fault; no longer
// when it has them after all.
func (c *Course) weighFetch(n *node, in *standing.Input) {
	f, failed := c.state.failures[n.Name]
	has := in.Fetch.Images
	switch {
	case has == standing.NobodyCan && in.Fault == "" && in.Want == in.Target && f.why == "":
		c.blame(n, failure{standing.BecauseFetch, "its images cannot be fetched: " + in.Fetch.Why})
	case failed && f.reason == standing.BecauseFetch && !c.targetFailed && !in.Fetch.Lacks():
		c.acquit(n)
	}
}

// recall finds out once more why the target fails on a node that a status named.
func (c *Course) recall(n *node, in *standing.Input, available bool) {
	if c.state.failures[n.Name].why == "" && in.Fault == "" {
		c.blameFor(n, in, available)
	}
}

// blameFor counts a node as failed if the target fails on it.
func (c *Course) blameFor(n *node, in *standing.Input, available bool) {
	f := c.failing(n, in, available)
	if f.why != "" {
		c.blame(n, f)
	}
}

// refusedBeside: the pod that was to start beside the old one was refused, by the try
// that has just ended and by all for long enough.
func (c *Course) refusedBeside(n *node) {
	d := &n.daemon
	_, failed := c.state.failures[n.Name]
	begun := n.change.begun
	if begun != nil && d.Revision == *begun && d.Revision != "" && d.Held && d.Refused != "" &&
		c.lasts(n) && !failed && c.changing && c.target(n) == c.state.target {
		c.blame(n, failure{standing.BecauseRefused, d.Refused})
	}
}

// innocent: whatever is wrong with the node's daemon is not the target's doing. The
// node is out of order, its daemon was before, or it was never given the target.
func (c *Course) innocent(n *node, in *standing.Input, available bool) bool {
	return in.Fault != "" || n.change.before == standing.WasNotAvailable && !available ||
		n.daemon.Revision == "" && n.change.before == "" && !in.IsNew && !in.Joins
}

// failing says why the target fails on the node; nothing if it does not.
func (c *Course) failing(n *node, in *standing.Input, available bool) failure {
	d := &n.daemon
	switch {
	case d.NoRoom != "":
		if in.Crowded && n.change.before != "" && d.Revision == in.Target {
			return failure{standing.BecauseNoRoom, "there is no room for it: " + d.NoRoom}
		}
	case in.Restarted:
		return failure{cmp.Or(d.Cause, standing.BecauseRestarts),
			fmt.Sprintf("%d restarts%s", c.restarts(n), words.Colon(d.Trouble))}
	case d.Refused != "" && c.lasts(n):
		return failure{standing.BecauseRefused, d.Refused}
	case available:
	case in.Hopeless:
		return failure{cmp.Or(d.Cause, standing.BecauseStart), cmp.Or(d.Trouble, "its containers cannot start")}
	case standing.IsPast(in.Late, in.Now):
		return failure{standing.BecauseLate, "not available in time" + words.Colon(d.Trouble)}
	}
	return failure{}
}

// blame counts a node as failed by the target revision.
func (c *Course) blame(n *node, f failure) {
	c.state.failures[n.Name], c.named = f, ""
	if known := len(c.state.failures); known > keptNames {
		c.state.most = max(c.state.most, known)
	}
}

// acquit takes a failure off: the node has healed before the limit was passed.
func (c *Course) acquit(n *node) {
	delete(c.state.failures, n.Name)
	c.named = ""
}

// forgetFailures begins without evidence: the target is another one, or is tried again.
func (c *Course) forgetFailures() {
	clear(c.state.failures)
	c.state.most, c.state.since, c.state.after, c.named = 0, time.Time{}, time.Time{}, ""
}
