package course

import (
	"fmt"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/course/queue"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// progress says how far the step is, and what it waits for: of one that stands still somebody must see why.
func (c *Course) progress() string {
	s, text := c.queue.Steps[c.state.open], ""
	if c.isNew || c.back {
		s = c.firstChanging()
	} else if s != nil {
		text = fmt.Sprintf(": %d of %s done", s.Sums[standing.Done], words.Nodes(s.Sums[standing.Selected])) + c.awaits(s)
	}
	if s == nil {
		return ""
	}
	if m, ok := s.Changing.Min(); ok {
		n := c.known(m)
		return fmt.Sprintf("%s, %d under way%s", text, s.Changing.Len(), words.Such(s.Changing.Len(), n.Name, n.view.reason))
	}
	if n := s.HeldUp(); n != nil {
		return fmt.Sprintf("%s; %s waits: %s", text, n.Name, n.Group.Limits(c.policy.Domains))
	}
	if !c.back && s.Sums[standing.Pending] > 0 && c.counts[standing.FailedRevision] == 0 {
		return text + c.blockedBy()
	}
	return text
}

// canFetch reports whether the node can be asked for images: its agent says so, or pods ask it.
func (c *Course) canFetch(n *node) bool { return c.ds.FetchPods.Ask || fetch.Can(n.fact.labels()) }

// fetchStatus says how nodes fetch images as the policy wants, and what hinders that; nil for nothing.
func (c *Course) fetchStatus() *v1alpha1.FetchStatus {
	hinders := fetching.Hindrance(c.ds.Fetches, c.queue.Totals[standing.Unasked], c.ds.MoreImages)
	return c.ds.FetchPods.Status(c.policy, c.changing && !c.isNew && !c.back, hinders)
}

// awaits says which nodes of the step fetch images while others wait for them; "" if none.
func (c *Course) awaits(s *queue.Step) string {
	m, any := s.Awaited.Min()
	if !any {
		return ""
	}
	n := c.known(m)
	return fmt.Sprintf("; images are awaited on %s, such as %s (%s)", words.Nodes(s.Awaited.Len()), n.Name, n.view.reason)
}

// firstChanging is the first step in which something is under way, or held up.
func (c *Course) firstChanging() (held *queue.Step) {
	for _, at := range c.fleet.Steps() {
		switch s := c.queue.Steps[at]; {
		case s == nil:
		case s.Changing.Len() > 0:
			return s
		case held == nil && s.HeldUp() != nil:
			held = s
		}
	}
	return held
}

// moves says what a change does beside replacing a pod; "" if it does nothing else.
func (c *Course) moves(n *node) string {
	switch {
	case c.back:
	case c.departs(n):
		return "; then its daemon is taken away"
	case c.joins(n) && n.daemon.Revision == "":
		return "; then it gets its first daemon"
	}
	return ""
}

// waitsFor says what the node's change waits for.
func (c *Course) waitsFor(n *node) string {
	c.stands()
	switch {
	case c.phase != v1alpha1.PhaseProgressing && c.phase != v1alpha1.PhaseSoaking && (!c.back || c.trails()):
		return c.message
	case !c.back && !c.begun(n.step):
		return "step " + c.policy.StepName(n.step) + " has not begun; step " + c.policy.StepName(c.state.open) +
			" is under way"
	}
	if at := c.queue.Steps[n.step]; c.gate.Shut(n.step) && !c.back && at != nil && at.Awaited.Len() > 0 {
		return "it waits for others of its step" + c.awaits(at)
	}
	if n.view.reason != "" {
		return n.view.reason
	}
	if c.policy == nil {
		return "its turn" + c.heldUp()
	}
	if full := n.Group.Limits(c.policy.Domains); full != "" {
		return full
	}
	return "its turn"
}
