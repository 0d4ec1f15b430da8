package course

import (
	"cmp"
	"fmt"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course/failures"
	"github.com/everynode/everynode/internal/controller/daemonset/course/outage"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// weigh adds the node to the evidence against the target, or takes it off when it
// has healed before the limit was passed.
func (c *Course) weigh(n *node, in *standing.Input) {
	if !n.chosen.Target || c.policy == nil {
		return // what is taken away cannot fail, and nobody says what a failure is
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
		c.state.failures.Acquit(n.Name)
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
	f, failed := c.state.failures.Of(n.Name)
	has := in.Fetch.Images
	switch {
	case has == standing.NobodyCan && in.Fault == "" && in.Want == in.Target && f.Why == "":
		c.state.failures.Blame(n.Name, failures.Failure{
			Reason: standing.BecauseFetch, Why: "its images cannot be fetched: " + in.Fetch.Why,
		})
	case failed && f.Reason == standing.BecauseFetch && !c.targetFailed && !in.Fetch.Lacks():
		c.state.failures.Acquit(n.Name)
	}
}

// recall finds out once more why the target fails on a node that a status named.
func (c *Course) recall(n *node, in *standing.Input, available bool) {
	if f, _ := c.state.failures.Of(n.Name); f.Why == "" && in.Fault == "" {
		c.blameFor(n, in, available)
	}
}

// blameFor counts a node as failed if the target fails on it.
func (c *Course) blameFor(n *node, in *standing.Input, available bool) {
	if f := c.failing(n, in, available); f.Why != "" {
		c.state.failures.Blame(n.Name, f)
	}
}

// refusedBeside: the pod that was to start beside the old one was refused, by the try
// that has just ended and by all for long enough.
func (c *Course) refusedBeside(n *node) {
	d, begun := &n.daemon, n.change.begun
	if begun != nil && d.Revision == *begun && d.Revision != "" && d.Held && c.refused(n, c.state.target) &&
		!c.state.failures.Has(n.Name) && c.changing && c.target(n) == c.state.target {
		c.state.failures.Blame(n.Name, failures.Failure{Reason: standing.BecauseRefused, Why: d.Refused})
	}
}

// innocent: whatever is wrong with the node's daemon is not the target's doing. The
// node is out of order, its daemon was before, or it was never given the target.
func (c *Course) innocent(n *node, in *standing.Input, available bool) bool {
	return in.Fault != "" || n.change.before == standing.WasNotAvailable && !available ||
		n.daemon.Revision == "" && n.change.before == "" && !in.IsNew && !in.Joins
}

// failing says why the target fails on the node; nothing if it does not.
func (c *Course) failing(n *node, in *standing.Input, available bool) failures.Failure {
	d := &n.daemon
	switch {
	case d.NoRoom != "":
		if in.Crowded && n.change.before != "" && d.Revision == in.Target {
			return failures.Failure{Reason: standing.BecauseNoRoom, Why: "there is no room for it: " + d.NoRoom}
		}
	case in.Restarted:
		return failures.Failure{Reason: cmp.Or(d.Cause, standing.BecauseRestarts),
			Why: fmt.Sprintf("%d restarts%s", c.restarts(n), words.Colon(d.Trouble))}
	case c.refused(n, in.Target):
		return failures.Failure{Reason: standing.BecauseRefused, Why: d.Refused}
	case available:
	case in.Hopeless:
		return failures.Failure{
			Reason: cmp.Or(d.Cause, standing.BecauseStart), Why: cmp.Or(d.Trouble, "its containers cannot start"),
		}
	case standing.IsPast(in.Late, in.Now):
		return failures.Failure{Reason: standing.BecauseLate, Why: "not available in time" + words.Colon(d.Trouble)}
	}
	return failures.Failure{}
}

// forgetFailures begins without evidence: the target is another one, or is tried again.
func (c *Course) forgetFailures() {
	c.recent.graves = outage.Graves{}
	c.state.failures, c.state.since, c.state.after = failures.Failures{}, time.Time{}, time.Time{}
}
