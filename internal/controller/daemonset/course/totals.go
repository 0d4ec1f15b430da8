package course

import (
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// account takes a node's old contribution off all sums and adds the new one.
func (c *Course) account(n *node, v view) {
	old := n.view
	if was, is := old.State.Verdict(), v.State.Verdict(); was != is {
		c.counts[was]--
		c.counts[is]++
	}
	if old.order != v.order {
		c.moved = append(c.moved, n.Name)
	}
	n.view = v
	c.queue.Count(&n.Member, n.step, v.Standing, c.domains())
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// regroup finds the domains that a node is in.
func (c *Course) regroup(n *node) {
	c.ungroup(n)
	c.queue.Join(&n.Member, n.fact.labels(), c.domains())
}

func (c *Course) domains() []rolloutpolicy.Domain {
	if c.policy == nil {
		return nil
	}
	return c.policy.Domains
}

// ungroup takes a node out of its domains.
func (c *Course) ungroup(n *node) {
	if n.Group != nil {
		c.account(n, n.view.nothing())
		c.queue.Leave(&n.Member)
	}
}

// mostHave reports whether the revision has not failed, and works on more than half of the nodes: a node that never had
// it must not keep a DaemonSet new for ever, whose changes ask for no steps.
func (c *Course) mostHave(revision string) bool {
	return revision != "" && !c.state.HasFailed(revision) && c.onMost(func(d *standing.Daemon) bool {
		return d.Revision == revision && !d.Since.IsZero()
	})
}

// mostWork reports whether more than half of the nodes have an available daemon, of another revision than that.
// Beside another controller that makes pods of the newest everywhere.
func (c *Course) mostWork(than string) bool {
	return !c.ds.Beside && c.onMost(func(d *standing.Daemon) bool {
		return d.Available && d.Revision != than
	})
}

// onMost reports whether something holds of the daemon on more than half of the nodes that are chosen so far.
func (c *Course) onMost(holds func(*standing.Daemon) bool) bool {
	selected, held := 0, 0
	for _, n := range c.nodes {
		chosen := c.choose(n).Any() // who has just started chose by the newest
		selected, held = selected+one(chosen), held+one(chosen && holds(&n.daemon))
	}
	return 2*held > selected
}
