package course

import (
	"cmp"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// reason says what there is to say about a node in the state, beside what it waits for.
func (c *Course) reason(n *node, in *standing.Input, s standing.State, by standing.Cause) string {
	switch s {
	case standing.Failed, standing.Kept:
		f, _ := c.state.failures.Of(n.Name)
		return cmp.Or(f.Why, in.Why(s, by))
	case standing.Awaiting, standing.Unfetched:
		return fetching.Words(&in.Fetch, c.state.target, c.canFetch(n))
	}
	return in.Why(s, by)
}

// judge gives a node's standing. It changes nothing.
func (c *Course) judge(n *node) view {
	in := c.input(n)
	return c.judgeBy(n, &in)
}

// judgeBy is judge where the input is known already.
func (c *Course) judgeBy(n *node, in *standing.Input) view {
	if !n.chosen.Any() {
		target := cmp.Or(c.state.stable, c.state.target)
		return view{order: standing.Order{Target: target, Changing: in.Changing}} // outside, which counts as nothing
	}
	v := view{Standing: queue.Standing{State: standing.Classify(in)}, order: c.order(in)}
	v.cause, v.wake = c.cause(n, in), in.Wake(v.State)
	v.reason = c.reason(n, in, v.State, v.cause)
	if !v.wake.After(c.now) {
		v.wake = time.Time{}
	}
	v.wake = deadline.Sooner(v.wake, in.Overdue())
	v.wake = deadline.Sooner(deadline.Sooner(v.wake, in.Sure), deadline.Sooner(in.Recovers, in.Fetch.Until))
	c.count(n, in, &v)
	return v
}

// cause is by whose doing the node's daemon is unavailable. Of a node that nobody hears of it is
// nobody's: whatever began there, it died. A second pod that does not come up in time, and is what the node is to
// have, is under way no longer: until its step begins it stays as it is.
func (c *Course) cause(n *node, in *standing.Input) standing.Cause {
	d := &n.daemon
	ends := in.Fault != "" || standing.IsPast(in.Lingers, in.Now) || in.Stalls()
	switch {
	case in.Begun, d.Unsure, d.Two && !ends:
		return standing.UnderWay
	case n.change.taken && !n.fact.Silent:
		return standing.Us
	}
	return standing.Nobody
}

// count adds what the node counts as.
func (c *Course) count(n *node, in *standing.Input, v *view) {
	d := &n.daemon
	down := !d.Available && !(in.Leaves && d.Empty()) || in.Begun && (!c.ds.Surge || in.Leaves)
	if in.First && in.Fault == "" {
		down = false // nothing is taken away from a node that never had the daemon
	}
	e := v.State.Counts(v.cause, in.Back)
	mayChange, free := c.candidate(n, in)
	v.Free = free
	busy := c.begun(n.step) || v.cause == standing.UnderWay || v.cause == standing.Us && !in.Lost
	e = e.With(standing.Given, in.Failed || d.Revision == in.Target).With(standing.Sick, in.IsSick()).
		With(standing.Failure, in.Failed).With(standing.Busy, e.Has(standing.Ours) && !in.Failed && busy).
		With(standing.Removed, v.State == standing.LeftOut && in.Want == in.Target && in.Departs).With(standing.Down, down).
		With(standing.Fetches, in.Fetch.Images == standing.Awaited).
		With(standing.Fetched, in.Fetch.Images == standing.HasImages).
		With(standing.Unasked, in.Fetch.Wish == standing.Ask && !c.canFetch(n)).With(standing.Queued, in.Fetch.Queued)
	held := mayChange && !free && n.Group.Stuck()
	if held {
		e = e&^standing.SetOf(standing.Passed) | standing.SetOf(standing.Excused)
	}
	if n.change.late && (v.State == standing.Soaking || v.State.Verdict() == standing.Changing) {
		e = e&^standing.SetOf(standing.Soaks) | standing.SetOf(standing.Late)
	}
	excused := e.Has(standing.Excused)
	v.Counts = e.With(standing.Held, mayChange && excused).With(standing.Pending, mayChange && !excused).
		With(standing.Stays, down && in.StaysDown(v.State, e))
}

// isDown reports whether a node without a daemon asks for no room: it counts as unavailable already.
func (n *node) isDown(in *standing.Input) bool { return in.IsNew || n.change.taken || in.Failed }

// candidate reports whether the node's pod is to be replaced, or made where that asks for leave, and whether that makes
// nothing unavailable. Nothing changes towards a revision whose template cannot be read.
func (c *Course) candidate(n *node, in *standing.Input) (change, free bool) {
	d := &n.daemon
	free = !d.Available && in.Recovers.IsZero()
	switch {
	case !c.started || in.Want == "" || in.Has() || in.Begun || d.Held || in.Fault != "" || in.Lost,
		in.Fetch.Lacks():
		return false, false
	case d.Revision == "":
		return (in.IsNew || in.Joins) && !in.Leaves, n.isDown(in)
	case !free && c.superseded(n, in.Want):
		return false, false
	}
	return true, free
}

func (c *Course) order(in *standing.Input) standing.Order {
	want := in.Want
	return standing.Order{
		Fetch: in.Fetch.Wish, Target: want, Change: in.Begun && want != "",
		Changing: in.Changing, Halted: c.targetFailed && !in.Back,
		Create: c.started && want != "" && (in.Begun || !in.IsNew && !in.Joins || want != in.Target),
	}
}
