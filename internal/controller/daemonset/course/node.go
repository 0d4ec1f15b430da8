package course

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/course/outage"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// node is one node of the fleet: facts, what is remembered of its change, and what follows.
type node struct {
	queue.Member
	fact   Node
	daemon standing.Daemon
	step   rolloutpolicy.Step
	chosen standing.Chosen
	change change

	view    view
	fetched standing.Fetching
	timer   deadline.Timer[*node]
	// fell is since when it is out of order, as fact.Since, by this process' clock.
	fell time.Time
	// lately is whether it fell out of order a short while ago, until quiet ends.
	lately lately
	quiet  deadline.Timer[*node]
	// marked is how it fell then.
	marked outage.Fall
}

// change is what is remembered of a node's change: facts alone do not tell it.
type change struct {
	// begun is the revision that the node had when its change was let begin, until that shows.
	begun *string
	// before is what its daemon was like when its change began, until the next one has soaked.
	before standing.Before
	// taken: that daemon was available, and none has been since. A change of direction towards
	// the stable revision begins without it. instead is the revision that was to come; owed: it comes before the node's
	// turn in a later change, since no pod of the stable one can be made there.
	taken, owed bool
	instead     string
	// spared: taken was true when the direction turned towards the stable revision. When it turns
	// forward again before a daemon was available, that counts again.
	spared bool
	// overlooked is how often its pod had restarted when the target was tried again; earlier: that pod is from before.
	overlooked int32
	earlier    bool
	// fetch is what is remembered of the target's images on it.
	fetch fetching.Node
	// works is since when a pod of that revision was first available, whatever became of it since.
	works   time.Time
	worksOf string
	// late: the node came into its step when that had begun long ago.
	late bool
	// up is since when its pod was seen available without a break, whatever its node says of it since, and fell when
	// that ended after it had soaked; going since when one was seen on its way out; bound when it was seen to be bound,
	// and troubled since when it was seen in a trouble that waiting does not end, or refused; held since when tries to
	// change the node fail; healed when its node was seen in order again, or when the course began and its daemon, for
	// all that was known, had just come back with it. All are by this process' clock.
	up, fell, going, bound, troubled, held, healed, began time.Time
}

// view is what follows from the facts about one node.
type view struct {
	queue.Standing
	since  time.Time // when it came into the state
	cause  standing.Cause
	reason string
	order  standing.Order
	wake   time.Time
}

// SetNode tells of a node.
func (c *Course) SetNode(name string, fact Node) {
	fact.Fault = words.Cut(fact.Fault)
	_, known := c.nodes[name]
	n := c.node(name)
	if known && n.fact.equal(&fact) {
		return
	}
	labelsChanged := !maps.Equal(n.fact.labels(), fact.labels())
	if n.fact.Fault != "" && fact.Fault == "" && c.started {
		n.change.healed = c.now
	}
	if !n.fact.Since.Equal(fact.Since) {
		n.fell = c.seen(fact.Since)
		if n.fact.Maintained { // what somebody took it down for is no fall: only one from before counts
			n.fell = n.marked.At
		}
	}
	if fact.Silent {
		c.api = deadline.Later(c.api, fact.Since)
	}
	n.fact = fact
	if labelsChanged {
		c.regroup(n)
	}
	c.resort(n, labelsChanged)
	c.refresh(n)
	c.settle()
}

// SetDaemon tells what became of the DaemonSet on a node.
func (c *Course) SetDaemon(name string, d standing.Daemon) {
	n := c.node(name)
	was := n.daemon
	d.Trouble, d.NoRoom, d.Refused = words.Cut(d.Trouble), words.Cut(d.NoRoom), words.Cut(d.Refused)
	n.daemon = d
	c.api = deadline.Later(c.api, deadline.Later(d.Made, d.Bound))
	if was == d {
		return
	}
	c.refusedBeside(n)
	c.observe(n, &was)
	n.change.owed = n.change.owed || d.Refused != "" && d.RefusedOf == c.state.stable && c.mayOwe(n)
	c.resort(n, false)
	c.leftAt(n, &was)
	c.refresh(n)
	c.settle()
}

// observe keeps what follows from how the daemon was until now.
func (c *Course) observe(n *node, was *standing.Daemon) {
	d, ch := &n.daemon, &n.change
	another := was.Revision == "" || !d.Made.Equal(was.Made)
	if another && c.changing && d.Revision == c.state.target && d.Before != "" {
		ch.before = d.Before // it was begun before a restart
	}
	c.observeUp(n, was)
	c.observeTrouble(ch, d, was, another)
	if ch.overlooked > d.Restarts || !d.Made.Equal(was.Made) {
		ch.overlooked = 0
	}
	ch.earlier = ch.earlier && d.Made.Equal(was.Made)
	if ch.begun != nil && (d.Revision != *ch.begun || d.Two || d.Held) {
		ch.begun = nil
	}
	if d.Available && ch.begun == nil {
		ch.taken, ch.spared = false, false
	}
}

// observeUp keeps since when the daemon is available, and when it fell after it had soaked.
func (c *Course) observeUp(n *node, was *standing.Daemon) {
	d, ch := &n.daemon, &n.change
	switch {
	case !d.Made.Equal(was.Made):
		ch.fell = time.Time{}
		ch.healed, ch.began = time.Time{}, time.Time{} // another pod does not recover from what was before it
	case !d.Since.IsZero(), was.Since.IsZero():
	case !deadline.Later(was.Since, ch.up).Add(c.soak(n)).After(c.now):
		ch.fell = c.now
	}
	switch {
	case d.Since.IsZero():
		ch.up = time.Time{}
	case was.Since.IsZero(), !d.Made.Equal(was.Made):
		ch.up = d.Since
		if c.started && c.now.After(d.Since) {
			ch.up = c.now // the node's clock may be behind
		}
		if ch.worksOf != d.Revision {
			ch.works, ch.worksOf = ch.up, d.Revision
		}
		if n.step == c.state.open && c.started {
			c.state.soak.Stir(c.now, c.api)
		}
	}
}

// observeTrouble keeps since when a pod is on its way out, one is bound, one is in trouble, and tries fail. Another
// tells that the daemon's newest pod is another one than before.
func (c *Course) observeTrouble(ch *change, d, was *standing.Daemon, another bool) {
	c.keep(&ch.going, !d.EndsBy.IsZero(), was.EndsBy.IsZero())
	c.keep(&ch.bound, !d.Bound.IsZero(), was.Bound.IsZero() || another)
	c.keep(&ch.troubled, d.Troubled(), !was.Troubled() || another && d.Revision != "")
	switch {
	case d.Revision == "", another, d.Two && !d.EndsBy.IsZero(), was.Two && !d.Two:
		ch.held = time.Time{}
	case d.Held && ch.held.IsZero():
		ch.held = c.now
	}
}

// keep has a time be that of now where something begins, and none where it is not.
func (c *Course) keep(at *time.Time, is, begins bool) {
	switch {
	case !is:
		*at = time.Time{}
	case begins:
		*at = c.now
	}
}

// DeleteNode forgets a node.
func (c *Course) DeleteNode(name string) {
	n := c.nodes[name]
	if n == nil {
		return
	}
	c.noteAbsent(n)
	c.recent.bury(c, n)
	n.daemon, n.chosen = standing.Daemon{}, standing.Chosen{}
	c.sort(n)
	c.refresh(n)
	c.ungroup(n)
	c.timers.Stop(&n.timer)
	c.recent.drop(n)
	c.replacing.Drop(name)
	c.queue.Blocked.Delete(&n.Member)
	delete(c.nodes, name) // its failure stays: whoever repairs machines takes away the worst
	c.counts[n.view.State.Verdict()]--
	c.settle()
}

func (c *Course) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{Member: queue.Member{Name: name}}
		n.change.instead, n.change.taken = c.absentees.Take(name, c.now)
		n.timer.Owner, n.quiet.Owner = n, n
		c.counts[standing.NotSelected]++
		c.nodes[name] = n
		c.regroup(n)
	}
	return n
}

// resort asks again whether the node belongs to the fleet, and where in it.
func (c *Course) resort(n *node, labelsChanged bool) {
	was := n.chosen.Any()
	n.chosen = c.choose(n)
	if n.chosen.Any() != was || labelsChanged {
		c.sort(n)
	}
}

// sort brings a node's step in line with its labels, and those of nodes that make room for it.
func (c *Course) sort(n *node) {
	if c.fleet == nil {
		return
	}
	var moved []string
	if n.chosen.Any() {
		moved = c.fleet.Set(n.Name, n.fact.labels())
	} else {
		moved = c.fleet.Delete(n.Name)
	}
	for _, name := range moved {
		if o := c.nodes[name]; o != nil {
			c.restep(o)
		}
	}
}

// restep moves a node's contribution to the step that it belongs to now.
func (c *Course) restep(n *node) {
	c.account(n, n.view.nothing())
	n.step, _ = c.fleet.Step(n.Name)
	n.change.late = c.comesLate(n)
	c.refresh(n)
}

// comesLate reports whether the node's step has begun so long ago that the nodes it had then could have started and
// soaked. The next step does not wait for the start of who comes now: where nodes come and go all the time, as an
// autoscaler has them, it would wait for ever.
func (c *Course) comesLate(n *node) bool {
	return c.changing && c.followed() && c.begun(n.step) &&
		c.now.After(c.state.openSince.Add(c.soak(n)+c.policy.Failure.StartDeadline))
}

// seen is when a fact that has the time was seen, by this process' clock: its own may be another.
func (c *Course) seen(at time.Time) time.Time {
	if c.started && !at.IsZero() {
		return c.now
	}
	return c.past(at)
}

// nothing is a standing in the same state that counts as nothing.
func (v *view) nothing() view { return view{Standing: queue.Standing{State: v.State}, since: v.since} }

// refresh judges a node again after anything about it changed.
func (c *Course) refresh(n *node) {
	n.fetched = c.fetching(n)
	in := c.input(n)
	if in.Begun && n.unbegun(&in) {
		in = c.input(n)
	}
	if in.Changing && n.chosen.Any() {
		c.weigh(n, &in)
		in.Failed = c.state.failures.Has(n.Name)
	}
	v := c.judgeBy(n, &in)
	ch := &n.change
	over := v.State == standing.Soaked && c.policy != nil || v.State == standing.LeftOut
	if over && (ch.before != "" || ch.taken) {
		ch.before, ch.taken, ch.spared = "", false, false
		v = c.judge(n)
	}
	v.since = n.view.since
	if v.State != n.view.State {
		v.since = c.now
	}
	c.timers.Set(&n.timer, v.wake)
	c.account(n, v)
	c.recent.note(c, n)
	c.noteReplacing(n, &in)
}

// unbegun ends a change that was let begin where nothing is to come of it any more, and reports whether it did.
func (n *node) unbegun(in *standing.Input) bool {
	switch {
	case (in.Leaves || in.Want == "") && n.daemon.Empty(): // it was to get a pod, and is not any more
		n.change.begun = nil
	case n.daemon.Unsure:
		return false // it may lose what it has
	case !in.Leaves && n.daemon.Revision != "" && (in.Want == "" || in.Has()): // it has what it is to have by now
		n.change.cancel(&n.daemon)
	default:
		return false
	}
	return true
}

// noteReplacing keeps the nodes that are between the daemon that a change took away and the next one.
func (c *Course) noteReplacing(n *node, in *standing.Input) {
	ch, was := &n.change, standing.Before("")
	between := n.daemon.Revision == "" && ch.before != "" && !in.Leaves
	switch {
	case !n.chosen.Any():
	case ch.taken:
		was = standing.WasAvailable
	case between:
		was = ch.before
	}
	c.replacing.Note(n.Name, was, n.chosen.Any() && ch.spared && !ch.taken)
}

// revoke ends the changes that were let begin for something else and show nowhere. One whose pod is being
// made, or given other content, counts until that is known.
func (c *Course) revoke() {
	for _, n := range c.nodes {
		n.change.held = time.Time{}
		if b := n.change.begun; b != nil && n.daemon.Revision == *b && !n.daemon.Unsure {
			n.change.cancel(&n.daemon)
		}
	}
}

// cancel ends a change that was let begin and shows nowhere: the daemon is the old one.
func (ch *change) cancel(d *standing.Daemon) { ch.begun, ch.taken = nil, ch.taken && !d.Available }

// turnBack is a change of direction towards the stable revision: what the target has broken does
// not use up the limit any more. Where an earlier way back took a daemon, that still counts.
func (c *Course) turnBack() {
	for _, n := range c.nodes {
		ch := &n.change
		stays := ch.taken && c.takenFor(n) == c.state.stable
		ch.taken, ch.spared = stays, ch.spared || ch.taken && !stays
	}
	c.absentees = slices.DeleteFunc(c.absentees, func(a standing.Absentee) bool { return a.Revision != c.state.stable })
}

// takenFor is the revision for which the node's daemon was taken away: the stable one, where an earlier way back took
// it, whatever has been made there since.
func (c *Course) takenFor(n *node) string {
	if n.change.instead == c.state.stable {
		return c.state.stable
	}
	return cmp.Or(n.daemon.Revision, n.change.instead)
}

// turnForward is a change of direction away from the stable revision. What was taken before the last way
// back, and has not been available since, is unavailable by our doing all the same.
func (c *Course) turnForward() {
	for _, n := range c.nodes {
		ch := &n.change
		ch.taken, ch.spared = ch.taken || ch.spared && !n.daemon.Available, false
	}
}

// recallSpared takes over which nodes lost their daemon to a change before the last way back, and have had none since.
func (c *Course) recallSpared(names []string) {
	for _, name := range names {
		if n := c.nodes[name]; n != nil {
			n.change.spared = !n.daemon.Available
		}
	}
}

// ExpectRecovery is called before Start by who has not watched the nodes until then. Nobody knows whether a
// daemon that is not available was lost long ago, or comes up again because its node has just come back, as
// after a power cut that the servers had too: for as long as a start may take, it is not free to be taken.
// One that says what troubles it does not come up by itself.
func (c *Course) ExpectRecovery() {
	for _, n := range c.nodes {
		if d := &n.daemon; d.Revision != "" && !d.Available && d.Trouble == "" {
			n.change.began = c.now
		}
	}
}

// recallBefore finds out what daemons were like before their change: their next ones say it, and of nodes that have
// none what is stored, or the pod that was there last: one of the target what it replaced, another what it was like.
func (c *Course) recallBefore(stored map[string]standing.Before) {
	f := c.failed
	for _, n := range c.nodes {
		d, ch := &n.daemon, &n.change
		ch.before = c.beforeOf(d, stored[n.Name])
		ch.taken = !d.Available && (ch.taken || ch.before == standing.WasAvailable && !ch.spared)
		if d.Revision == "" {
			continue
		}
		ch.before = ""
		if c.changing && d.Revision == c.state.target {
			ch.before = d.Before
		}
		if d.Before == standing.WasAvailable && !d.Available && c.isOfThisChange(d, f) {
			ch.taken = true // the status may not have said it yet
		}
	}
}

// beforeOf is what the daemon was like that was taken away: as it is stored, or as the pod says it that was there last.
func (c *Course) beforeOf(d *standing.Daemon, stored standing.Before) standing.Before {
	switch {
	case stored != "", d.Revision != "", !c.changing:
		return stored
	case d.Ending == c.state.target:
		return d.Before
	}
	return d.Was
}

// isOfThisChange reports whether the pod was made in the present direction of the rollout. A time of a clock
// that was ahead tells nothing: all may have been.
func (c *Course) isOfThisChange(d *standing.Daemon, failed *v1alpha1.FailedRevision) bool {
	since := c.state.returns
	switch {
	case c.changing && !c.back && d.Revision == c.state.target:
		return true
	case since.IsZero() && failed != nil && rollsBack(failed):
		since = failed.Time.Time
	case since.IsZero():
		return false
	}
	return d.Revision == c.state.stable && (since.After(c.now) || !d.Made.Before(since.Truncate(time.Second)))
}

// choose asks whose rules want a daemon on the node.
func (c *Course) choose(n *node) standing.Chosen {
	target := c.ds.Newest
	if c.started {
		target = cmp.Or(c.state.target, target)
	}
	return standing.Choose(c.Meanwhile(), target, &n.daemon, func(revision string) bool {
		return c.ds.Selects(revision, n.fact.Object, n.daemon.Occupied())
	})
}

// chooseAll asks again about every node: another revision is stable, or the target.
func (c *Course) chooseAll() {
	for _, n := range c.nodes {
		c.resort(n, false)
	}
}

// leftAt takes note of when the daemon left a node of the present step. There is no pod
// whose age could be looked at, so the step soaks from then on.
func (c *Course) leftAt(n *node, was *standing.Daemon) {
	if c.started && !was.Empty() && n.daemon.Empty() && c.gone(n) {
		c.state.left = c.now
		c.state.soak.Stir(c.now, c.api)
	}
}
