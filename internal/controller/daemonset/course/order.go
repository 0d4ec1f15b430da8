package course

import (
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Order is what is to be on the node. Of one that is not known nothing is told yet.
func (c *Course) Order(name string) standing.Order {
	if n := c.nodes[name]; n != nil {
		return n.view.order
	}
	return standing.Order{Target: c.state.stable, Changing: c.changing}
}

// Moved returns the nodes whose order has changed since it was last called.
func (c *Course) Moved() []string {
	out := c.moved
	c.moved = nil
	return out
}

// Before is what is to be written on a pod that is made now on the node.
func (c *Course) Before(name string) standing.Before {
	if n := c.nodes[name]; n != nil {
		return n.change.before
	}
	return ""
}

// Makes are the revisions of which pods may still have to be made, as far as there are any.
func (c *Course) Makes() []string {
	out := []string{c.Meanwhile(), c.state.target}
	for _, n := range c.owing {
		if c.mayOwe(n) {
			out = append(out, n.change.instead)
		}
	}
	return out
}

// Started reports whether Start was called.
func (c *Course) Started() bool { return c.started }

// Wants reports whether some node's change would begin if it were given leave.
func (c *Course) Wants() bool { return c.queue.Totals[standing.Pending] > 0 && c.followed() }

// Returns reports whether nodes go back to the stable revision, for which there is no
// pace. Those that follow a change which is complete, such as after a power cut, have it.
func (c *Course) Returns() bool {
	return c.started && c.policy != nil && c.back && (c.changing || c.undone)
}
