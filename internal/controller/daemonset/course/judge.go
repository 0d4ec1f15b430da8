package course

import (
	"cmp"
	"fmt"
	"time"

	"github.com/everynode/everynode/internal/deadline"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// view is all that follows from the facts about one node.
type view struct {
	verdict Verdict
	reason  string
	// done: it has what it is to have, and has soaked; soaking: not yet. excused: it is not
	// waited for. passed: it is, but holds up no further step, since what fails on one
	// node, within the limit, must not hold up all others for ever.
	done, soaking, excused, passed bool
	// given: it has the target revision, or had. failed: it counts as failed.
	given, failed bool
	// down: without an available daemon. busy: made so, or about to be, by the
	// rollout. fault: out of order by itself.
	down, busy, fault bool
	// stays: down until somebody mends the node or the revision, so that who waits for it
	// in its domain holds up no step.
	stays bool
	// sick: the node itself is, and counts against the limit of such nodes.
	sick bool
	// change: it may be taken. free: taking it makes nothing unavailable.
	change, free bool
	// left: the daemon was taken away, as it is to be.
	left     bool
	selected bool
	order    Order
	wake     time.Time
}

// refresh judges a node anew after anything about it changed.
func (c *Course) refresh(n *node) {
	if n.daemon.empty() && c.leaves(n, c.target(n)) {
		c.end(n) // it was to get a pod, and is not any more
	}
	v := c.judge(n)
	c.timers.Set(&n.timer, v.wake)
	c.account(n, v)
	c.recent.note(c, n)
	c.remember(n)
}

func (c *Course) judge(n *node) view {
	if !n.chosen.any() {
		return view{verdict: NotSelected, order: Order{Target: cmp.Or(c.state.stable, c.state.target), Kept: true, Changing: c.changing()}}
	}
	want := c.target(n)
	leaves := c.leaves(n, want)
	v := view{selected: true, wake: c.overdue(n), sick: n.fact.Fault != "", order: c.order(n, want)}
	v.down = !n.daemon.Available && !(leaves && n.daemon.empty()) || n.begun != nil && (!c.ds.Surge || leaves)
	if c.changing() {
		c.weigh(n)
		_, v.failed = c.state.failures[n.name]
		v.given = v.failed || n.daemon.Revision == c.state.target
	}
	c.find(n, want, &v)
	c.change(n, want, &v)
	v.passed = v.verdict == FailedRevision && !v.excused
	v.stays = v.down && (v.fault || v.verdict == FailedRevision && !c.back())
	return v
}

// find gives the node's verdict.
func (c *Course) find(n *node, want string, v *view) {
	d := &n.daemon
	has := want != "" && d.Revision == want
	up := has && !d.Since.IsZero()
	switch {
	case c.leaves(n, want):
		c.leaving(n, want, v)
	case v.failed && !(up && c.back()):
		c.failedOn(n, v)
	case up:
		c.current(n, v)
	case n.fact.Fault != "":
		v.verdict, v.reason, v.fault, v.excused = NodeFault, n.fact.Fault, true, true
	case has && c.hasNoRoom(n):
		v.verdict, v.reason, v.fault, v.excused = NoRoom, d.NoRoom, true, true
		v.sick = true
	case !has && (want == "" || d.Revision != ""):
		c.outdated(n, want, v)
	default:
		c.starting(n, v)
	}
}

// failedOn: the target fails on the node, or did and has not been well for long enough.
func (c *Course) failedOn(n *node, v *view) {
	v.verdict, v.reason, v.busy = FailedRevision, c.state.failures[n.name].why, true
	since := n.daemon.Since
	if ends := since.Add(c.soak(n)); !since.IsZero() && ends.After(c.now) {
		v.wake = ends
	}
}

// change adds what the node's change means for others: whether it may be taken, and
// what it counts as.
func (c *Course) change(n *node, want string, v *view) {
	if n.begun != nil || n.daemon.Unsure || n.daemon.Two && n.fact.Fault == "" && !c.lingers(n) {
		v.busy = true
	}
	if c.untouched(n) && n.fact.Fault == "" {
		// Nothing is taken away from a node that never had the daemon.
		v.down = false
	}
	v.change, v.free = c.candidate(n, want)
	if v.change && !v.free && n.group.stuck() {
		v.excused = true
	}
}

// untouched: nothing was done yet on a node that is to get its first daemon.
func (c *Course) untouched(n *node) bool {
	return (c.isNew() || c.joins(n)) && n.daemon.Revision == "" && !n.daemon.Ended && n.begun == nil
}

// current: the pod that is to be there is available.
func (c *Course) current(n *node, v *view) {
	if n.daemon.Revision != c.state.target && !c.back() {
		v.verdict = Waiting // the target is not for it yet
		return
	}
	v.verdict = Current
	if ends := n.daemon.Since.Add(c.soak(n)); c.changing() && !c.back() && ends.After(c.now) {
		until := c.patience(n)
		if !until.After(c.now) {
			v.verdict, v.reason, v.wake = NodeFault, "it says anew and anew that its pod has just become ready", ends
			v.fault, v.excused, v.sick = true, true, true
			return
		}
		v.soaking, v.reason, v.wake = true, "soaks until "+clock(ends), deadline.Sooner(ends, until)
		return
	}
	v.done = true
}

// outdated: the pod that is there has another revision.
func (c *Course) outdated(n *node, want string, v *view) {
	d := &n.daemon
	switch {
	case n.begun != nil:
		v.verdict, v.reason = Changing, "its pod of revision "+d.Revision+" is being replaced"
	case want == "":
		v.verdict, v.reason = Waiting, "the revision has failed, and there is none to go back to"
	case !d.Available:
		v.verdict, v.reason, v.fault = NodeFault, "its daemon was not available before: "+cmp.Or(d.Trouble, "its pod is not ready"), true
	default:
		v.verdict, v.reason = Waiting, c.waitsFor(n)
	}
}

// starting: a pod of the right revision is on its way up, or there is none yet.
func (c *Course) starting(n *node, v *view) {
	d := &n.daemon
	if d.Revision == "" && c.lingers(n) {
		c.neverEnds(n, v)
		return
	}
	ends := c.deadline(n)
	stuck := c.hopeless(n) || c.tooManyRestarts(n) || !ends.IsZero() && !ends.After(c.now)
	if stuck {
		// Failures of the target are evidence; this is the stable revision, or a node
		// whose daemon was bad before.
		v.verdict, v.reason = NodeFault, cmp.Or(d.Trouble, "its daemon does not become available")
		v.fault, v.excused = true, true
		return
	}
	v.verdict, v.busy, v.reason, v.wake = Changing, true, "its daemon starts", ends
	switch {
	case c.untouched(n):
		v.verdict, v.busy = Waiting, false
	case d.Revision == "":
		v.reason, v.wake = cmp.Or(d.Refused, cmp.Or(d.Trouble, "it gets a pod")), c.lingersFrom(n)
	case d.Bound.IsZero():
		// Whoever binds may be away for all nodes: they would all lose their daemons.
		v.reason, v.wake = "its pod is not bound to it yet", c.roomUntil(n)
	}
}

// neverEnds: the node's old pod does not end. Nothing of the revision runs there, so it is
// not to blame, and others do not wait.
func (c *Course) neverEnds(n *node, v *view) {
	v.verdict, v.reason = NodeFault, "its old pod was to end by "+clock(n.daemon.EndsBy)+", and is still there"
	v.fault, v.excused, v.sick = true, true, true
}

// lingers tells whether a pod that was to end is still there, for longer than a start
// may take.
func (c *Course) lingers(n *node) bool {
	at := c.lingersFrom(n)
	return !at.IsZero() && !at.After(c.now)
}

// overdue is when the second pod of the node does, or that of one that is to have none, if
// that is to come.
func (c *Course) overdue(n *node) time.Time {
	if at := c.lingersFrom(n); (n.daemon.Two || c.leaves(n, c.target(n))) && at.After(c.now) {
		return at
	}
	return time.Time{}
}

func (c *Course) lingersFrom(n *node) time.Time {
	if n.daemon.EndsBy.IsZero() || c.policy == nil {
		return time.Time{}
	}
	return n.daemon.EndsBy.Add(c.policy.Failure.StartDeadline)
}

// weigh adds the node to the evidence against the target, or takes it off when it
// has healed before the limit was passed.
func (c *Course) weigh(n *node) {
	if !n.chosen.target {
		return // what is taken away cannot fail
	}
	d := &n.daemon
	has := d.Revision == c.state.target
	_, failed := c.state.failures[n.name]
	if !has && d.Revision != "" {
		return
	}
	available := has && !d.Since.IsZero()
	switch soaked := available && n.fact.Fault == "" && !d.Since.Add(c.soak(n)).After(c.now); {
	case failed && soaked && !c.hasFailed(c.state.target):
		c.acquit(n)
	case failed:
		c.recall(n, available)
	case soaked:
		n.before = ""
	case c.innocent(n, available):
	default:
		if f := c.failing(n, available); f.why != "" {
			c.blame(n, f)
		}
	}
}

// recall finds out once more why the target fails on a node that a status named.
func (c *Course) recall(n *node, available bool) {
	if c.state.failures[n.name].why != "" || n.fact.Fault != "" {
		return
	}
	if f := c.failing(n, available); f.why != "" {
		c.blame(n, f)
	}
}

// refusedBeside: the pod that was to start beside the old one was refused, by the try
// that has just ended.
func (c *Course) refusedBeside(n *node) {
	d := &n.daemon
	_, failed := c.state.failures[n.name]
	if n.begun != nil && d.Revision == *n.begun && d.Revision != "" && d.Held && d.Refused != "" && !failed && c.changing() && c.target(n) == c.state.target {
		c.blame(n, failure{BecauseRefused, d.Refused})
	}
}

// innocent: whatever is wrong with the node's daemon is not the target's doing. The
// node is out of order, its daemon was before, or it was never given the target.
func (c *Course) innocent(n *node, available bool) bool {
	return n.fact.Fault != "" || n.before == WasNotAvailable && !available ||
		n.daemon.Revision == "" && n.before == "" && !c.isNew() && !c.joins(n)
}

// failing says why the target fails on the node; nothing if it does not.
func (c *Course) failing(n *node, available bool) failure {
	d := &n.daemon
	ends := c.deadline(n)
	switch {
	case d.NoRoom != "":
		if c.hasNoRoom(n) && n.before != "" && d.Revision == c.state.target {
			return failure{BecauseNoRoom, "there is no room for it: " + d.NoRoom}
		}
	case c.tooManyRestarts(n):
		return failure{cmp.Or(d.Cause, BecauseRestarts), fmt.Sprintf("%d restarts%s", c.restarts(n), colon(d.Trouble))}
	case d.Refused != "":
		return failure{BecauseRefused, d.Refused}
	case available:
	case c.hopeless(n):
		return failure{cmp.Or(d.Cause, BecauseStart), cmp.Or(d.Trouble, "its containers cannot start")}
	case !ends.IsZero() && !ends.After(c.now):
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
	c.recent.acquit(n)
}

// forgetFailures begins without evidence: the target is another one, or is tried anew.
func (c *Course) forgetFailures() {
	clear(c.state.failures)
	c.state.most, c.state.since, c.named = 0, time.Time{}, ""
	for n := range c.recent.changed {
		c.recent.acquit(n)
	}
}

func (c *Course) tooManyRestarts(n *node) bool {
	return c.policy != nil && c.restarts(n) >= c.policy.Failure.Restarts
}

// deadline is until when the node's newest pod must be available.
func (c *Course) deadline(n *node) time.Time {
	if c.policy == nil || n.daemon.Revision == "" || n.daemon.Bound.IsZero() {
		return time.Time{}
	}
	from := n.daemon.Bound
	if c.old(n) && from.Before(c.state.since) {
		from = c.state.since
	}
	return from.Add(c.policy.Failure.StartDeadline + time.Duration(c.ds.MinReadySeconds)*time.Second)
}

func (c *Course) soak(n *node) time.Duration {
	if c.policy == nil {
		return 0
	}
	return c.policy.Waves[n.step.Wave].Soak
}

// patience is until when the node may soak. Its own word says since when its pod is ready,
// and one that moves it on while the pod is ready must not hold up all others for ever.
func (c *Course) patience(n *node) time.Time {
	if c.policy == nil {
		return n.up
	}
	return n.up.Add(2*c.soak(n) + c.policy.Failure.StartDeadline)
}

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

// changing tells whether there is another revision to go to than the stable one.
func (c *Course) changing() bool { return c.started && c.state.target != c.state.stable }

// isNew tells whether there is no revision that nodes could stay with.
func (c *Course) isNew() bool { return c.state.stable == "" }

// begun tells whether the step has begun.
func (c *Course) begun(s rolloutpolicy.Step) bool {
	return c.policy != nil && (c.isNew() || s.Compare(c.state.open) <= 0)
}

// candidate tells whether the node's pod is to be replaced, or made where that asks
// for leave, and whether that makes nothing unavailable.
func (c *Course) candidate(n *node, want string) (change, free bool) {
	d := &n.daemon
	switch {
	case !c.started || want == "" || d.Revision == want || n.begun != nil || d.Held || n.fact.Fault != "":
		return false, false
	case d.Revision == "":
		return (c.isNew() || c.joins(n)) && !c.leaves(n, want), c.isNew()
	case c.superseded(n, want):
		return false, false
	}
	return true, !d.Available
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
