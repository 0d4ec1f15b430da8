package course

import (
	"fmt"
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
	"github.com/everynode/everynode/internal/fetch"
)

// progress says how far the step is, and what it waits for: of one that stands still
// somebody must see why.
func (c *Course) progress() string {
	s, text := c.steps[c.state.open], ""
	if c.isNew || c.back {
		s = c.firstChanging()
	} else if s != nil {
		text = fmt.Sprintf(": %d of %s done", s.sums[standing.Done], words.Nodes(s.sums[standing.Selected])) + s.awaits()
	}
	if s == nil {
		return ""
	}
	if n, ok := s.changing.Min(); ok {
		return fmt.Sprintf("%s, %d under way%s", text, s.changing.Len(), words.Such(s.changing.Len(), n.name, n.view.reason))
	}
	if n := s.held(); n != nil {
		return fmt.Sprintf("%s; %s waits: %s", text, n.name, n.group.limits(c))
	}
	if !c.back && s.sums[standing.Pending] > 0 && c.counts[standing.FailedRevision] == 0 {
		return text + c.blockedBy()
	}
	return text
}

// canFetch reports whether the node's agent says that it fetches images.
func (n *node) canFetch() bool { return fetch.Can(n.fact.labels()) }

// fetchStatus says what hinders that nodes fetch images as the policy wants; nil for nothing.
func (c *Course) fetchStatus() *v1alpha1.FetchStatus {
	why := fetching.Hindrance(c.ds.Fetches, c.totals[standing.Unasked], c.ds.MoreImages)
	if why == "" || !c.changing || c.isNew || c.back || !c.policy.Fetches() {
		return nil
	}
	return &v1alpha1.FetchStatus{Message: why}
}

// awaits says which nodes of the step fetch images while others wait for them; "" if none.
func (s *step) awaits() string {
	n, any := s.awaited.Min()
	if !any {
		return ""
	}
	return fmt.Sprintf("; images are awaited on %s, such as %s (%s)", words.Nodes(s.awaited.Len()), n.name, n.view.reason)
}

// firstChanging is the first step in which something is under way, or held up.
func (c *Course) firstChanging() (held *step) {
	for _, at := range c.fleet.Steps() {
		switch s := c.steps[at]; {
		case s == nil:
		case s.changing.Len() > 0:
			return s
		case held == nil && s.held() != nil:
			held = s
		}
	}
	return held
}

// held is a node that waits for its domains, if all do that wait.
func (s *step) held() *node {
	if _, any := s.first(); any || s.free.Len() > 0 {
		return nil
	}
	n, _ := s.asking.Min()
	return n
}

// limits says which of the group's domains let no further node go.
func (g *group) limits(c *Course) string {
	var full []string
	for _, d := range g.domains {
		if d.full {
			full = append(full, fmt.Sprintf("%s=%s has %d unavailable, %s allowed",
				c.policy.Domains[d.place.domain].Key, d.place.value,
				d.down, c.policy.Domains[d.place.domain].MaxUnavailable))
		}
	}
	return strings.Join(full, "; ")
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
	case c.phase != v1alpha1.PhaseProgressing && c.phase != v1alpha1.PhaseSoaking && !c.back:
		return c.message
	case !c.back && !c.begun(n.step):
		return "step " + c.policy.StepName(n.step) + " has not begun; step " + c.policy.StepName(c.state.open) + " is under way"
	}
	if at := c.steps[n.step]; c.gate.Shut(n.step) && !c.back && at != nil && at.awaited.Len() > 0 {
		return "it waits for others of its step" + at.awaits()
	}
	if n.daemon.Refused != "" {
		return n.daemon.Refused + "; it is tried again"
	}
	if full := n.group.limits(c); full != "" {
		return full
	}
	return "its turn"
}
