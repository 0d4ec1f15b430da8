package course

import (
	"cmp"
	"time"
)

// chosen says by whose placement rules a node is to have a daemon: those of the stable
// revision, of the target, and of the revision that its own pod has. A node that any of
// them wants belongs to the fleet: what is to leave it, and what is to come to it, are
// changes like others.
type chosen struct{ stable, target, own bool }

func (h chosen) any() bool { return h.stable || h.target || h.own }

// choose asks whose rules want a daemon on the node.
func (c *Course) choose(n *node) (h chosen) {
	stable, target := c.state.stable, c.state.target
	if !c.started {
		target = c.ds.Newest
	}
	selects := func(revision string) bool {
		return revision != "" && c.ds.Selects(revision, n.fact.Object, n.daemon.occupied())
	}
	h.target = selects(target)
	h.stable = stable == target && h.target || stable != target && selects(stable)
	switch has := cmp.Or(n.daemon.Revision, n.daemon.Ending); has {
	case target:
		h.own = has != "" && h.target
	case stable:
		h.own = h.stable
	default:
		h.own = selects(has)
	}
	return h
}

// chooseAll asks again about every node: another revision is stable, or the target.
func (c *Course) chooseAll() {
	for _, n := range c.nodes {
		c.resort(n, false)
	}
}

// leaves reports whether the node is to have no daemon, by the revision that it is to have.
func (c *Course) leaves(n *node, want string) bool {
	if want == c.state.target {
		return want != "" && !n.chosen.target
	}
	return want != "" && !n.chosen.stable
}

// joins reports whether the node is to have its first daemon by the target's rules.
func (c *Course) joins(n *node) bool {
	return c.changing() && !c.isNew() && n.chosen.target && !n.chosen.stable
}

// departs reports whether the target takes the daemon away from the node.
func (c *Course) departs(n *node) bool {
	return c.changing() && n.chosen.stable && !n.chosen.target
}

// gone reports whether the daemon was taken away: a departure that is done stays so.
func (c *Course) gone(n *node) bool {
	return c.departs(n) && n.daemon.Revision == "" && c.begun(n.step)
}

// empty: nothing is left of a pod.
func (d *Daemon) empty() bool { return d.Revision == "" && d.Ending == "" && !d.Ended }

// occupied: there is some pod, of whatever revision.
func (d *Daemon) occupied() bool { return !d.empty() || !d.Made.IsZero() }

// troubled: waiting does not help, as far as can be told at once.
func (d *Daemon) troubled() bool { return d.Certain || d.Refused != "" }

// leftAt takes note of when the daemon left a node of the present step. There is no pod
// whose age could be looked at, so the step soaks from then on.
func (c *Course) leftAt(n *node, was *Daemon) {
	if c.started && !was.empty() && n.daemon.empty() && c.gone(n) {
		c.state.left = c.now
	}
}

// quietUntil is until when the nodes that the daemon left in the present step are watched;
// zero if they need not be.
func (c *Course) quietUntil() time.Time {
	s := c.steps[c.state.open]
	if c.policy == nil || s == nil || s.sums[Removed] == 0 {
		return time.Time{}
	}
	since := c.state.openSince
	if c.state.left.After(since) {
		since = c.state.left
	}
	ends := since.Add(c.policy.Waves[c.state.open.Wave].Soak)
	if !ends.After(c.now) {
		return time.Time{}
	}
	return ends
}

// moves says what a change does beside replacing a pod; "" if it does nothing else.
func (c *Course) moves(n *node) string {
	switch {
	case c.back():
	case c.departs(n):
		return "; then its daemon is taken away"
	case c.joins(n) && n.daemon.Revision == "":
		return "; then it gets its first daemon"
	}
	return ""
}
