package course

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/approval"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course/failures"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// fail writes the target down as failed. A new DaemonSet has nothing to go back to.
func (c *Course) fail(why string, action v1alpha1.FailureAction) {
	if c.state.stable == "" {
		action = halt
	}
	f := v1alpha1.FailedRevision{
		Revision: c.state.target, Why: why, Nodes: c.state.failures.Sample(), Time: metav1.NewTime(c.now), Action: action,
		Retries: approval.Tries(c.spec.Retry, c.state.target, c.ds.Digest),
	}
	c.state.Add(f)
	c.takeAim()
	c.revoke()
	if action == rollback {
		c.turnBack()
	}
}

// renamed has the target be called as the newest revision is, if it is the same one and has failed: so has the one of
// the new name, and nodes go where they went. It reports whether that is so. One that has not failed begins again.
func (c *Course) renamed() bool {
	was, is := c.state.target, c.ds.Newest
	same := c.ds.Renamed != "" && content.WithVariants(c.ds.Renamed, "") == content.WithVariants(was, "") &&
		content.VariantsOf(was) == content.VariantsOf(is)
	if !same || c.failed == nil || is == c.state.stable {
		return false
	}
	f := *c.failed
	f.Revision, f.Retries = is, approval.Tries(c.spec.Retry, is, c.ds.Digest)
	c.state.target = is
	c.state.Drop(is)
	c.state.Add(f)
	c.takeAim()
	return true
}

// retried reports whether somebody asks for one more try of the target that has failed.
func (c *Course) retried() bool { return approval.Asks(c.spec.Retry, c.failed, c.ds.Digest) }

// hear takes in what the spec approves.
func (c *Course) hear() { c.state.consent.Hear(c.spec.Approved, c.retried()) }

// refuse has a target wait for somebody to ask for it that failed longer ago than is remembered well. One that failed
// under a DaemonSet that was deleted since is halted: the new one has nothing to go back to.
func (c *Course) refuse() {
	target := c.state.target
	if target == c.state.stable {
		return
	}
	if c.failed != nil {
		if c.state.stable == "" {
			c.retell(halt, "")
		}
		return
	}
	if why := c.state.Refusal(target); why != "" {
		c.state.Drop(target)
		c.fail(why+"; everynode rollout retry tries it", halt)
	}
}

// retell writes down otherwise what the target's failure leads to.
func (c *Course) retell(action v1alpha1.FailureAction, why string) {
	c.state.Failed = slices.Clone(c.state.Failed)
	f := c.state.Failure(c.state.target)
	f.Action, f.Why = action, f.Why+why
	c.takeAim()
}

// retry tries a failed revision again, if somebody asks for it once more.
func (c *Course) retry() bool {
	if !c.retried() {
		return false
	}
	c.state.Drop(c.state.target)
	c.state.consent.Next() // who approved has not seen it fail
	c.takeAim()
	c.beginAnew()
	c.disregardEarlier()
	c.recallBefore(c.goneBack())
	c.turnForward()
	c.refreshAll()
	return true
}

// goneBack are the nodes from which the way back took a working daemon, and which have none since. A try
// of the target does not give it to them.
func (c *Course) goneBack() map[string]standing.Before {
	out := map[string]standing.Before{}
	for name, n := range c.nodes {
		if n.change.taken && n.daemon.Revision != c.state.target {
			out[name] = standing.WasAvailable
		}
	}
	return out
}

// noteReturn keeps since when nodes go to the stable template, until all have it, and work; after another change of
// the template until those that went work. Of a target that failed it is known when it did.
func (c *Course) noteReturn() {
	switch {
	case !c.replacing.Any() && (c.changing || c.queue.Totals[standing.Pending]+c.queue.Totals[standing.Held] == 0):
		c.state.returns, c.undone = time.Time{}, false
	case c.state.returns.IsZero() && !c.changing:
		c.state.returns = c.now
	}
}

// recallReturn adds, to what a status says of daemons that were taken away, those that the way back took: the pods
// that came for them say it. Where the status had no room for more names, every node that has no pod may be one.
func (c *Course) recallReturn(stored map[string]standing.Before) {
	full := len(stored) >= failures.Kept
	for _, n := range c.nodes {
		d := &n.daemon
		came := d.Revision != "" && d.Before == standing.WasAvailable && c.isOfThisChange(d, c.failed)
		if stored[n.Name] == "" && !d.Available && (came || full && d.Revision == "") {
			stored[n.Name] = standing.WasAvailable
		}
	}
}

// lastWay is the revision that was to come where a daemon was taken away before a restart, as far as that is known.
func (c *Course) lastWay() string {
	if c.back || !c.state.returns.IsZero() {
		return c.state.stable
	}
	return c.state.target
}

// disregardEarlier has what nodes and pods of the target did until now be no evidence.
func (c *Course) disregardEarlier() {
	c.state.since, c.state.after = c.past(c.now.Truncate(time.Second)), c.api
	for _, n := range c.nodes {
		n.change.earlier = n.daemon.Revision == c.state.target
	}
	c.overlook()
}

// recallEarlier finds out after a restart which pods are from before the evidence begins, and what was to come instead
// of those that were taken away.
func (c *Course) recallEarlier() {
	for _, n := range c.nodes {
		n.change.instead = c.lastWay()
		n.change.earlier = !n.daemon.Made.After(c.state.after)
	}
}

// overlook has the restarts of pods that are older than the evidence not count.
func (c *Course) overlook() {
	for _, n := range c.nodes {
		if c.old(n) {
			n.change.overlooked = n.daemon.Restarts
		}
	}
}

// giveUp takes the nodes back that a halt left as they were, because somebody aborted it; false if there is
// nothing to do.
func (c *Course) giveUp() bool {
	if !c.aborts() || c.state.stable == "" || c.back {
		return false
	}
	c.retell(rollback, "; somebody aborted it")
	c.turnBack()
	c.refreshAll()
	return true
}
