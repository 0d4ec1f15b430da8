package course

import (
	"cmp"
	"time"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/course/soaking"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// input collects what a node's state follows from.
func (c *Course) input(n *node) standing.Input {
	want := c.target(n)
	in := standing.Input{
		Now: c.now, Daemon: &n.daemon, Fault: n.fact.Fault, Want: want, Leaves: c.leaves(n, want),
		Lost: want != "" && c.ds.Of(want) == nil, Maintained: n.fact.Maintained,
		Target: c.state.target, Back: c.back, Changing: c.changing, IsNew: c.isNew, Begun: n.change.begun != nil,
		Unmoved: c.unmoved(n), Sure: c.sureFrom(n), Recovers: c.recovers(n),
		Restarted: c.policy != nil && c.restarts(n) >= c.policy.Failure.Restarts,
		Late:      c.deadline(n), Lingers: c.lingersFrom(n), Patience: c.patience(n), Room: c.roomUntil(n),
	}
	in.Fetch, in.Joins, in.Departs = n.fetched, c.joins(n), c.departs(n)
	in.First, in.Crowded = c.untouched(n, in.Joins), n.daemon.NoRoom != "" && in.Room.IsZero()
	in.Refused = n.daemon.Revision == "" && c.refused(n, want)
	// A pod from before the target was tried again has the time of a start to show that it is another.
	in.Hopeless = n.daemon.Certain && in.Sure.IsZero() && !c.old(n)
	if in.Changing {
		in.Failed = c.state.failures.Has(n.Name)
	}
	if !n.daemon.Since.IsZero() {
		in.Soaked = deadline.Later(n.daemon.Since, c.upSince(n)).Add(c.soak(n))
	}
	return in
}

// fetching finds out whether the node has the images of the target.
func (c *Course) fetching(n *node) standing.Fetching {
	if !c.ds.Fetches || c.policy == nil || !c.policy.Waves[n.step.Wave].Fetch {
		return n.change.fetch.Look(&fetching.Input{})
	}
	d, begun := &n.daemon, c.begun(n.step)
	wanted := c.started && c.changing && !c.back && !c.isNew && !c.targetFailed && n.chosen.Target &&
		!n.fact.Maintained && d.Revision != "" && content.TemplateOf(d.Revision) != content.TemplateOf(c.state.target)
	return n.change.fetch.Look(&fetching.Input{
		Now: c.now, Wanted: wanted && (begun || c.gate.MayFetch(n.step)), May: c.followed(),
		Target: c.state.target, Since: c.state.since, Says: d.Fetch, Deadline: c.policy.Waves[n.step.Wave].FetchDeadline,
		Free: !d.Available && c.recovers(n).IsZero(), Foretells: c.ds.Foretells, ByPods: c.ds.FetchPods.Ask,
		Begun: begun, Opened: deadline.Later(c.state.openSince, d.Made),
	})
}

// MayFetch is how many nodes pods may ask for images at a time where this one is asked, and how long each may take.
func (c *Course) MayFetch(name string) (atOnce int, patience time.Duration) {
	n := c.nodes[name]
	wave := &c.policy.Waves[n.step.Wave]
	return fetching.AtOnce(wave, c.queue.Steps[n.step].Sums[standing.Selected], c.most()), wave.FetchDeadline
}

// target is the revision that a pod made now on the node is to have; "" if none is to be made.
func (c *Course) target(n *node) string {
	switch {
	case !c.changing:
		return c.state.stable
	case c.targetFailed, c.follow != Followed:
		if f := c.failed; f != nil && rollsBack(f) && c.state.stable != "" {
			return c.state.stable
		}
		if n.daemon.Revision == c.state.target || c.gone(n) {
			return c.state.target
		}
		return c.meanwhile(n)
	case c.isNew, n.daemon.Revision == c.state.target && !c.astray(n), c.begun(n.step):
		return c.state.target
	}
	return c.meanwhile(n)
}

// meanwhile is what a node is to have that is not to have the target, or not yet: the stable revision. Where there is
// none it keeps what it has, and one without a daemon gets the revision that stands in.
func (c *Course) meanwhile(n *node) string {
	if n.change.owed && c.mayOwe(n) {
		return n.change.instead
	}
	if s, r := c.state.standIn, n.daemon.Revision; c.state.stable == "" && (r == "" || r == s) && c.ds.Of(s) != nil {
		return s
	}
	return c.state.stable
}

// mayOwe reports whether the node's daemon was taken for an earlier target, and the node may still get that.
func (c *Course) mayOwe(n *node) bool {
	r, is := n.change.instead, n.daemon.Revision
	return n.change.taken && (is == "" || is == r) && r != c.state.stable && r != c.state.target &&
		!c.state.HasFailed(r) && c.ds.Of(r) != nil && c.ds.Selects(r, n.fact.Object, n.daemon.Occupied())
}

// begun reports whether the step has begun.
func (c *Course) begun(s rolloutpolicy.Step) bool {
	return c.policy != nil && (c.isNew || s.Compare(c.state.open) <= 0)
}

// recovers is until when the node's daemon may become available again by itself, since its pod is ready, or after its
// node was out of order, or the course began: as long as a start may take. Taking it takes a daemon away. Zero if it
// is not to be waited for.
func (c *Course) recovers(n *node) time.Time {
	if n.daemon.Comes.After(c.now) {
		return n.daemon.Comes
	}
	ch := &n.change
	if n.daemon.Available || n.daemon.Revision == "" || c.policy == nil {
		return time.Time{}
	}
	var ends time.Time
	if from := deadline.Later(ch.healed, ch.began); !from.IsZero() {
		ends = from.Add(c.policy.Failure.StartDeadline)
	}
	if !ch.fell.IsZero() && n.daemon.Trouble == "" { // what its probe asks may be back in a moment
		ends = deadline.Later(ends, ch.fell.Add(min(Lasting, c.policy.Failure.StartDeadline)))
	}
	return deadline.Ahead(ends, c.now)
}

// untouched: nothing was done yet on a node that is to get its first daemon.
func (c *Course) untouched(n *node, joins bool) bool {
	ch := &n.change
	return (c.isNew || joins) && n.daemon.Revision == "" && !n.daemon.Ended && ch.begun == nil && !ch.taken
}

// unmoved is when tries to change the node have failed for as long as a start may take. From then on it
// is tried again, and holds up no other. Zero if none has failed.
func (c *Course) unmoved(n *node) time.Time {
	if n.change.held.IsZero() || c.policy == nil {
		return time.Time{}
	}
	return n.change.held.Add(c.policy.Failure.StartDeadline)
}

// lingersFrom is when a pod that was to end counts as one that does not: after as long as a start may take.
func (c *Course) lingersFrom(n *node) time.Time {
	switch {
	case c.policy == nil:
	case !n.daemon.EndsBy.IsZero(): // it counts from when it was seen on its way, since the API's clock may be another
		return n.change.going.Add(n.daemon.Grace + c.policy.Failure.StartDeadline)
	case n.daemon.Two: // nor may it be deleted
		return c.unmoved(n)
	}
	return time.Time{}
}

// superseded: the node has a revision that was the target once and did not fail. It keeps it until its step begins.
func (c *Course) superseded(n *node, want string) bool {
	r := n.daemon.Revision
	return c.changing && want == c.state.stable && r != c.state.target && !c.state.HasFailed(r) && !c.targetFailed &&
		!c.astray(n)
}

// leaves reports whether the node is to have no daemon, by the revision that it is to have.
func (c *Course) leaves(n *node, want string) bool {
	if want == c.state.target {
		return want != "" && !n.chosen.Target
	}
	return want != "" && !n.chosen.Stable
}

// Meanwhile is what nodes have before their turn: the stable revision, or what stands in for it; "" for none.
func (c *Course) Meanwhile() string { return cmp.Or(c.state.stable, c.state.standIn) }

// joins reports whether the node is to have its first daemon by the target's rules.
func (c *Course) joins(n *node) bool {
	return c.changing && c.Meanwhile() != "" && n.chosen.Target && !n.chosen.Stable
}

// departs reports whether the target takes the daemon away from the node.
func (c *Course) departs(n *node) bool {
	return c.changing && n.chosen.Stable && !n.chosen.Target
}

// gone reports whether the daemon was taken away: a departure that is done stays so.
func (c *Course) gone(n *node) bool {
	return c.departs(n) && n.daemon.Revision == "" && c.begun(n.step)
}

// old reports whether the node's pod is from before the target was tried again: what was
// wrong with it then is no evidence.
func (c *Course) old(n *node) bool {
	return n.daemon.Revision == c.state.target && n.change.earlier && !c.state.since.IsZero()
}

// restarts is how often the node's newest pod restarted since the evidence begins.
func (c *Course) restarts(n *node) int32 { return n.daemon.Restarts - n.change.overlooked }

// Lasting is how long a trouble must be seen before it counts as one that waiting does not end: a ConfigMap may come a
// moment later than its reader, and registries and webhooks restart. A kubelet has tried three times by then.
const Lasting = 30 * time.Second

// sureFrom is when the trouble that the node's pod is in counts as one that waiting does not end;
// zero if it does already, or the pod is in none.
func (c *Course) sureFrom(n *node) time.Time {
	if n.change.troubled.IsZero() || c.policy == nil {
		return time.Time{}
	}
	return deadline.Ahead(n.change.troubled.Add(min(Lasting, c.policy.Failure.StartDeadline)), c.now)
}

// refused reports whether the API has refused the node's pod of that revision, for long enough.
func (c *Course) refused(n *node, revision string) bool {
	return n.daemon.Refused != "" && n.daemon.RefusedOf == revision && c.lasts(n)
}

// lasts reports whether the trouble that the node's pod is in, or that it is refused, has lasted.
func (c *Course) lasts(n *node) bool {
	return !n.change.troubled.IsZero() && c.sureFrom(n).IsZero()
}

// roomUntil is until when the scheduler may find room for a pod from before the target was
// tried again; zero if it has said its word.
func (c *Course) roomUntil(n *node) time.Time {
	if c.policy == nil || n.daemon.NoRoom == "" || !c.old(n) {
		return time.Time{}
	}
	return deadline.Ahead(c.state.since.Add(c.policy.Failure.StartDeadline), c.now)
}

// deadline is until when the node's newest pod must be available. It counts from when it was seen
// to be bound, since the API's clock may be another, and again from when it fell after it had soaked, and
// from when its node is in order again. One that never soaks gets no more time by falling.
func (c *Course) deadline(n *node) time.Time {
	if c.policy == nil || n.daemon.Revision == "" || n.daemon.Bound.IsZero() {
		return time.Time{}
	}
	from := n.change.bound
	if from.IsZero() {
		from = n.daemon.Bound
	}
	if c.old(n) {
		from = deadline.Later(from, c.state.since)
	}
	from = deadline.Later(from, deadline.Later(n.change.fell, n.change.healed))
	return from.Add(c.policy.Failure.StartDeadline + time.Duration(c.ds.MinReadySeconds)*time.Second)
}

// opens has a step be the furthest that has begun, from now on.
func (c *Course) opens(s rolloutpolicy.Step) {
	c.state.open, c.state.openSince, c.state.left = s, c.now, time.Time{}
	c.state.soak = soaking.Begin(c.now, c.began, c.api)
}

func (c *Course) soak(n *node) time.Duration {
	if c.policy == nil {
		return 0
	}
	return c.policy.Waves[n.step.Wave].Soak
}

// upSince is since when the node's daemon counts as available: not before this process, or one before it, saw that.
func (c *Course) upSince(n *node) time.Time {
	if n.step == c.state.open && !c.ds.Foretells {
		return c.state.soak.Since(n.change.up)
	}
	return n.change.up
}

// patience is until when the node may soak. Its own word says since when its pod is ready,
// and one that moves it on while the pod is ready must not hold up all others for ever; nor one that comes and goes.
func (c *Course) patience(n *node) time.Time {
	up := c.upSince(n)
	if c.policy == nil {
		return up
	}
	if works := n.change.works; n.change.worksOf == n.daemon.Revision && works.Before(up) {
		up = c.state.soak.Since(works)
	}
	return up.Add(2*c.soak(n) + c.policy.Failure.StartDeadline)
}

// quietUntil is until when the nodes that the daemon left in the present step are watched; zero if they need not be.
func (c *Course) quietUntil() time.Time {
	s := c.queue.Steps[c.state.open]
	if c.policy == nil || s == nil || s.Sums[standing.Removed] == 0 {
		return time.Time{}
	}
	since := c.state.soak.Since(deadline.Later(c.state.openSince, c.state.left))
	return deadline.Ahead(since.Add(c.policy.Waves[c.state.open.Wave].Soak), c.now)
}

// stepSoaks reports whether the present step does: the status says for how long, and nothing while nodes are still to be
// changed, since the next process has to see the soak from its beginning.
func (c *Course) stepSoaks() bool {
	s := c.queue.Steps[c.state.open]
	return c.policy != nil && c.changing && !c.isNew && !c.back && !c.targetFailed && s != nil && s.Changed()
}

// soakUnseen has the pods soak from now on that came after the last status, while nobody looked.
func (c *Course) soakUnseen() {
	for _, n := range c.nodes {
		if n.step == c.state.open && n.daemon.Revision == c.state.target && c.state.soak.Misses(n.daemon.Made) {
			n.change.up = c.now
			c.state.soak.Stir(c.now, c.api)
		}
	}
}
