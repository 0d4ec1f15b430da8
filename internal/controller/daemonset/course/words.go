package course

import (
	"fmt"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// longest is how many bytes are kept of words that come from elsewhere, such as what a webhook says: a
// condition has room for 32 KiB.
const longest = 1024

// cut shortens words from elsewhere, at a letter.
func cut(s string) string {
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}

// progress says how far the step is, and what it waits for: of one that stands still
// somebody must see why.
func (c *Course) progress() string {
	s, text := c.steps[c.state.open], ""
	if c.isNew || c.back {
		s = c.firstChanging()
	} else if s != nil {
		text = fmt.Sprintf(": %d of %s done", s.sums[standing.Done], nodes(s.sums[standing.Selected]))
	}
	if s == nil {
		return ""
	}
	if n, ok := s.changing.Min(); ok {
		such := ": "
		if s.changing.Len() > 1 {
			such = ", such as "
		}
		return fmt.Sprintf("%s, %d under way%s%s (%s)", text, s.changing.Len(), such, n.name, n.view.reason)
	}
	if n := s.held(); n != nil {
		return fmt.Sprintf("%s; %s waits: %s", text, n.name, n.group.limits(c))
	}
	return text
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

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// clock writes a time for people.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

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
	if n.daemon.Refused != "" {
		return n.daemon.Refused + "; it is tried again"
	}
	if full := n.group.limits(c); full != "" {
		return full
	}
	return "its turn"
}

func have(n int) string {
	if n == 1 {
		return "1 node has"
	}
	return fmt.Sprintf("%d nodes have", n)
}

func soaking(n int) string {
	if n == 1 {
		return "1 node soaks"
	}
	return fmt.Sprintf("%d nodes soak", n)
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
