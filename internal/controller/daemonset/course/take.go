package course

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/rolloutpolicy"
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
	if c.totals[standing.Pending] == 0 || !c.followed() {
		return nil
	}
	forward := c.back || c.forward() && c.Misplaced() == 0
	var out []Permit
	for _, at := range c.fleet.Steps() {
		s := c.steps[at]
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
func (c *Course) nextOf(at rolloutpolicy.Step, s *step) *node {
	if n, ok := s.free.Min(); ok || c.gate.Shut(at) && !c.back {
		return n
	}
	if n, ok := s.first(); ok && c.room(at, s) {
		return n
	}
	return nil
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

// first is the first node whose domains let it go. A group that another domain holds up goes to its line.
func (s *step) first() (*node, bool) {
	for {
		l, ok := s.open.Min()
		if !ok {
			return nil, false
		}
		g, w := l.first, s.waiting[l.first]
		if !g.holder().full {
			return w.nodes.Min()
		}
		s.move(l, func() { l.groups.Delete(g) })
		s.enter(g, w)
	}
}

// room reports whether the limit of the step, or the DaemonSet's own, has room.
func (c *Course) room(at rolloutpolicy.Step, s *step) bool {
	if own := c.policy.Waves[at.Wave].MaxUnavailable; own != nil && !c.back && c.begun(at) {
		return s.sums[standing.Ours] < max(own.Of(s.sums[standing.Selected]), 1)
	}
	return c.totals[standing.Ours] < c.most()
}

// most is how many nodes the DaemonSet's own limit allows at a time.
func (c *Course) most() int { return max(c.ds.MaxUnavailable.Of(c.totals[standing.Selected]), 1) }

// begin lets the node's change begin.
func (c *Course) begin(n *node) Permit {
	d, ch := &n.daemon, &n.change
	p := Permit{Node: n.name, From: d.Revision, To: c.target(n), Free: n.view.free}
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
	for at, s := range c.steps {
		if !c.begun(at) {
			total += s.sums[standing.Pending]
		}
	}
	return total
}

// UnderWay is how many nodes are changing.
func (c *Course) UnderWay() (n int) {
	for _, s := range c.steps {
		n += s.changing.Len()
	}
	return n
}

// Fails reports whether the target counts as failed.
func (c *Course) Fails() bool { return c.state.HasFailed(c.state.target) }

// absentee is a node that was deleted while it was without an available daemon by our doing. Who repairs a node may
// delete its object and make it again: until a daemon is available there, that still uses up the limit.
type absentee struct {
	name, revision string // revision is that of the pod that it had, or was to get
	until          time.Time
}

// So long, and so many, absentees are remembered; the oldest are forgotten first. A node that is gone for good
// uses up nothing.
const (
	absence       = time.Hour
	keptAbsentees = 1000
)

// noteAbsent remembers the node, which is deleted, if it is without a daemon by our doing.
func (c *Course) noteAbsent(n *node) {
	if !n.change.taken || !n.chosen.any() {
		return
	}
	c.absentees = append(c.absentees, absentee{n.name, cmp.Or(n.daemon.Revision, n.change.instead), c.now.Add(absence)})
	c.forgetAbsentees()
}

// recallAbsentees remembers those that a status names; of when they went is only known that it was before.
func (c *Course) recallAbsentees(stored map[string]standing.Before) {
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if c.nodes[name] == nil && stored[name] == standing.WasAvailable {
			c.absentees = append(c.absentees, absentee{name, c.lastWay(), c.now.Add(absence)})
		}
	}
}

// comesBack reports whether a node of that name was such an absentee until now.
func (c *Course) comesBack(name string) bool {
	c.forgetAbsentees()
	i := slices.IndexFunc(c.absentees, func(a absentee) bool { return a.name == name })
	if i < 0 {
		return false
	}
	c.absentees = slices.Delete(c.absentees, i, i+1)
	return true
}

// forgetAbsentees drops those that are away for too long, or too many.
func (c *Course) forgetAbsentees() {
	old := max(len(c.absentees)-keptAbsentees, 0)
	for old < len(c.absentees) && !c.absentees[old].until.After(c.now) {
		old++
	}
	c.absentees = slices.Delete(c.absentees, 0, old)
}
