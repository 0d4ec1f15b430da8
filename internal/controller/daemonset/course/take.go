package course

import (
	"maps"
	"slices"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Permit lets the change of one node begin.
type Permit struct {
	Node string
	// From is the revision of the pod that goes, "" if there is none; To is the
	// node's target, "" if it is to have no daemon.
	From, To string
	// Free tells that nothing becomes unavailable by it.
	Free bool
}

// Take gives leave to change nodes, at most so many, and counts them as changing from now on.
// What comes of it shows in SetDaemon.
func (c *Course) Take(most int) []Permit {
	if c.queue.Totals[standing.Pending]+c.queue.Totals[standing.Held] == 0 || !c.followed() {
		return nil
	}
	forward := c.back || c.forward() && c.Misplaced() == 0
	var out []Permit
	for _, at := range c.fleet.Steps() {
		s := c.queue.Steps[at]
		// In a step that has not begun nodes only return from a revision that failed.
		if s == nil || c.begun(at) && !forward {
			continue
		}
		for len(out) < most {
			n := c.nextOf(at, s)
			if n == nil {
				break
			}
			out = append(out, c.begin(n))
		}
	}
	c.settle()
	return out
}

// nextOf is the node of a step that may be changed next; nil if none may.
func (c *Course) nextOf(at rolloutpolicy.Step, s *queue.Step) *node {
	if m, ok := s.Free.Min(); ok || c.gate.Shut(at) && !c.back || c.closed() {
		return c.known(m)
	}
	if m, ok := s.First(); ok && c.room(at, s) {
		return c.known(m)
	}
	return nil
}

// closed reports whether no working daemon may be taken now, since there is no window for it.
func (c *Course) closed() bool {
	open, _ := c.open()
	return c.trails() && !open
}

// followed reports whether anything may begin at all.
func (c *Course) followed() bool {
	f := c.failed
	return c.started && c.policy != nil && c.follow == Followed && !c.spec.Paused &&
		(f == nil || rollsBack(f) || !c.changing)
}

// forward reports whether nodes may be given the target now.
func (c *Course) forward() bool {
	open, _ := c.open()
	return open && !c.faulty() && c.tooFine() == ""
}

// known is the node that is such a member of the queue; nil for nil.
func (c *Course) known(m *queue.Member) *node {
	if m == nil {
		return nil
	}
	return c.nodes[m.Name]
}

// room reports whether the limit of the step, or the DaemonSet's own, has room.
func (c *Course) room(at rolloutpolicy.Step, s *queue.Step) bool {
	if own := c.policy.Waves[at.Wave].MaxUnavailable; own != nil {
		has := s.Sums[standing.Ours]+c.besideInRamp(at) < max(own.Of(s.Sums[standing.Selected]), 1)
		switch {
		case !c.back && c.begun(at):
			return has
		case c.trails() && !has: // nodes of all steps may be behind at once, so the other limit holds too
			return false
		}
	}
	return c.queue.Totals[standing.Ours] < c.most()
}

// besideInRamp is how many nodes are under way in other steps of the step's ramp, which all keep to one limit: where
// nodes leave or join, those that are may move into another of its steps, and where the steps begin again, a later one
// has those of the change before. In a step that has begun and is complete nobody is waited for.
func (c *Course) besideInRamp(at rolloutpolicy.Step) (n int) {
	if c.isNew || c.policy.Waves[at.Wave].Ramp == nil {
		return 0
	}
	for other, s := range c.queue.Steps {
		if other.Wave == at.Wave && other != at && (!c.begun(other) || s.Over() < s.Sums[standing.Selected]) {
			n += s.Sums[standing.Busy]
		}
	}
	return n
}

// most is how many nodes the DaemonSet's own limit allows at a time.
func (c *Course) most() int { return max(c.ds.MaxUnavailable.Of(c.queue.Totals[standing.Selected]), 1) }

// begin lets the node's change begin.
func (c *Course) begin(n *node) Permit {
	d, ch := &n.daemon, &n.change
	p := Permit{Node: n.Name, From: d.Revision, To: c.target(n), Free: n.view.Free}
	if c.leaves(n, p.To) {
		p.To = ""
	}
	from := d.Revision
	ch.begun = &from
	switch {
	case from == "": // another change may have taken one away
	case !p.Free, ch.taken: // the last one that was available, if not this one, was taken by us
		ch.before = standing.WasAvailable
	default:
		ch.before = standing.WasNotAvailable
	}
	// With surge the old daemon stays until the new one is available.
	if from != "" && !p.Free && !c.ds.Surge {
		ch.taken, ch.instead = true, c.target(n)
	}
	c.refresh(n)
	return p
}

// Misplaced is how many nodes have the target before their step has begun, and are to go back. Only beside another
// controller there are any.
func (c *Course) Misplaced() int {
	if !c.ds.Beside || c.policy == nil || c.back {
		return 0
	}
	total := 0
	for at, s := range c.queue.Steps {
		if !c.begun(at) {
			total += s.Sums[standing.Pending]
		}
	}
	return total
}

// astray reports whether nobody answered the other controller when it made the node's pod: it is of the newest
// template, or the stable one, without the content and variants that these have. Who has them had its turn.
func (c *Course) astray(n *node) bool {
	r, s := n.daemon.Revision, &c.state
	is, bare := content.WithVariants(s.target, ""), r == content.TemplateOf(s.stable) || r == content.TemplateOf(s.target)
	return c.ds.Beside && (r == is && is != content.WithVariants(s.stable, "") || bare && r != s.stable && r != s.target)
}

// UnderWay is how many nodes are on their way to the target's template. Others, such as those that join and get the
// stable one, tell nothing of it, nor do those that wait for leave to go on.
func (c *Course) UnderWay() (n int) {
	template := content.TemplateOf(c.state.target)
	for _, s := range c.queue.Steps {
		s.Changing.Ascend(func(m *queue.Member) bool {
			n += one(!m.Is.Has(standing.Pending) && content.TemplateOf(c.target(c.known(m))) == template)
			return true
		})
	}
	return n
}

// Fails reports whether the target counts as failed.
func (c *Course) Fails() bool { return c.state.HasFailed(c.state.target) }

// noteAbsent remembers the node, which is deleted, if it is without a daemon by our doing.
func (c *Course) noteAbsent(n *node) {
	if !n.change.taken || !n.chosen.Any() {
		return
	}
	c.absentees.Add(n.Name, c.takenFor(n), c.now)
}

// recallAbsentees remembers those that a status names; of when they went is only known that it was before.
func (c *Course) recallAbsentees(stored map[string]standing.Before) {
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if c.nodes[name] == nil && stored[name] == standing.WasAvailable {
			c.absentees.Add(name, c.lastWay(), c.now)
		}
	}
}
