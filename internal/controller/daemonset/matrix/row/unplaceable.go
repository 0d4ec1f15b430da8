package row

import (
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// noteUnplaceable remembers a cell of which there is something new to tell.
func (r *Row) noteUnplaceable(c *cell) {
	p := c.unplaceable()
	switch {
	case p == nil:
		if c.told != "" && slices.ContainsFunc(c.pods, func(p *Pod) bool { return p.live() && p.info.Bound }) {
			c.told = ""
		}
	case p.info.Unplaceable != c.told && !c.untold:
		c.untold = true
		r.untold = append(r.untold, c)
	}
}

// unplaceable returns the live pod that the scheduler found no room for. Of one that is to have more its node tells.
func (c *cell) unplaceable() *Pod {
	if c.column == nil || c.eligibility != placement.ShouldRun {
		return nil
	}
	for _, p := range c.pods {
		if p.live() && p.info.Phase == fact.PodActive && p.info.Unplaceable != "" && !p.info.Resized {
			return p
		}
	}
	return nil
}

// placements tells of each node and reason once.
func (r *Row) placements(out []action.Action) []action.Action {
	slices.SortFunc(r.untold, func(a, b *cell) int { return strings.Compare(a.node, b.node) })
	for _, c := range r.untold {
		c.untold = false
		if p := c.unplaceable(); p != nil && p.info.Unplaceable != c.told {
			c.own().told = p.info.Unplaceable
			out = append(out, &action.FailedPlacement{Target: r.target(), Node: c.node, PodName: p.info.Name,
				Detail: c.told})
		}
	}
	r.untold = nil
	return out
}
