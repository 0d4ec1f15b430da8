package course

import "github.com/everynode/everynode/internal/rolloutpolicy"

// Permit lets the change of one node begin.
type Permit struct {
	Node string
	// From is the revision of the pod that goes, "" if there is none; To is the
	// node's target, "" if it is to have no daemon.
	From, To string
	// Free tells that nothing becomes unavailable by it.
	Free bool
}

// Take gives leave to change nodes, and counts them as changing from now on. What comes
// of it shows in SetDaemon. Those that lose a daemon it reserves first, until Kept; with
// these there are no more than most.
func (c *Course) Take(most int) []Permit {
	c.release()
	if c.totals.pending == 0 || !c.followed() {
		return nil
	}
	forward := c.back() || c.forward()
	var out []Permit
	for _, at := range c.fleet.Steps() {
		s := c.steps[at]
		// In a step that has not begun nodes only return from a revision that failed.
		if s == nil || c.begun(at) && !forward {
			continue
		}
		for len(out)+len(c.reserved) < most && len(c.reserved) < keptNames {
			n, ok := s.free.Min()
			if !ok {
				if n, ok = s.first(); !ok || !c.room(at, s) {
					break
				}
			}
			if p := c.begin(n); !c.reserved[n] {
				out = append(out, p)
			}
		}
	}
	if len(out)+len(c.reserved) > 0 {
		c.settle()
	}
	return out
}

// followed tells whether anything may begin at all.
func (c *Course) followed() bool {
	f := c.failedRevision(c.state.target)
	return c.started && c.policy != nil && c.follow == Followed && !c.spec.Paused && (f == nil || rollsBack(f) || !c.changing())
}

// forward tells whether nodes may be given the target now.
func (c *Course) forward() bool {
	open, _ := c.policy.Windows.Open(c.now)
	return open && !c.faulty() && c.tooFine() == ""
}

// first is the first node whose domains let it go.
func (s *step) first() (*node, bool) {
	if g, ok := s.open.Min(); ok {
		return s.waiting[g].Min()
	}
	return nil, false
}

// room tells whether the limit of the step, or the DaemonSet's own, has room.
func (c *Course) room(at rolloutpolicy.Step, s *step) bool {
	if own := c.policy.Waves[at.Wave].MaxUnavailable; own != nil && !c.back() && c.begun(at) {
		return s.busy < max(own.Of(s.nodes), 1)
	}
	return c.totals.busy < max(c.ds.MaxUnavailable.Of(c.totals.selected), 1)
}

func (c *Course) begin(n *node) Permit {
	d := &n.daemon
	p := Permit{Node: n.name, From: d.Revision, To: c.target(n), Free: n.view.free}
	if c.leaves(n, p.To) {
		p.To = ""
	}
	from := d.Revision
	n.begun = &from
	switch {
	case from == "": // another change may have taken one away
	case p.To == "":
		n.before = ""
	case d.Available:
		n.before = WasAvailable
	default:
		n.before = WasNotAvailable
	}
	if from != "" && !c.ds.Surge && c.matters(n) && c.stored[n.name] != n.before {
		c.reserved[n] = true
	}
	c.refresh(n)
	return p
}
