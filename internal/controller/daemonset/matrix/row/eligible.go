package row

import (
	"cmp"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// newest is what the rules of the newest revision say about a node.
func (r *Row) newest(col *Column) placement.Eligibility {
	if col == nil {
		return placement.ShouldNotRun
	}
	eligibility, _ := r.info.Placement.Judge(col.Node)
	return eligibility
}

// eligibleBy is what the rules of a revision say about a cell.
func (r *Row) eligibleBy(revision string, c *cell) placement.Eligibility {
	if rules := r.rules.Of(revision); c.column == nil || rules.Same(r.info.Placement) {
		return c.newest
	}
	return r.rules.Eligible(revision, c.column.Node, len(c.pods) > 0)
}

// eligibility is what the placement rules say about a cell. Under a policy those of the
// revision that the node is to have say it. A pod that fits by the rules of its own
// revision was left out by a change of the template: it stays until it is its turn to go.
func (r *Row) eligibility(c *cell, order standing.Order) placement.Eligibility {
	if r.guide == nil || c.column == nil {
		return c.newest
	}
	want := cmp.Or(order.Target, r.info.Revision)
	e := r.eligibleBy(want, c)
	switch {
	case e == placement.ShouldRun || r.rules.Selects(want, c.column.Node, len(c.pods) > 0):
		return e
	case order.Change:
		return placement.ShouldNotRun
	case e == placement.ShouldNotRun && r.fitsItself(c, order):
		return placement.ShouldContinueRunning
	}
	return e
}

// fitsItself reports whether a pod of the cell is where its own revision wants it, or while a
// change is under way lets it stay. After that no turn would ever come.
func (r *Row) fitsItself(c *cell, order standing.Order) bool {
	for _, p := range c.pods {
		own := p.info.Revision
		stays := r.rules.Selects(own, c.column.Node, true) ||
			order.Changing && r.eligibleBy(own, c) != placement.ShouldNotRun
		if p.live() && stays {
			return true
		}
	}
	return false
}

// order is what the rollout says about a node. Without one, every node is to have the
// newest revision, and the row's budget says when.
func (r *Row) order(node string) standing.Order {
	if g := r.guide; g != nil {
		return g.course.Order(node)
	}
	return standing.Order{Target: r.info.Revision, Change: true, Create: true}
}

// wanted is the revision by whose rules a node is judged: the one that it is to have.
func (r *Row) wanted(node string) string { return cmp.Or(r.order(node).Target, r.info.Revision) }

// LeftOut says why the revision that the node is to have leaves it out.
func (r *Row) LeftOut(node string) string {
	rules, col := r.rules.Of(r.wanted(node)), r.columns[node]
	if rules == nil || col == nil {
		return ""
	}
	_, why := rules.Judge(col.Node)
	return why
}

// cellOf returns the cell of a node, which is made if the node is to have a daemon; nil if it is not.
func (r *Row) cellOf(node string) *cell {
	c, col := r.cells[node], r.columns[node]
	if c != nil || col == nil || r.rules.Eligible(r.wanted(node), col.Node, false) != placement.ShouldRun {
		return c
	}
	return r.addCell(node)
}

// held reports whether the daemon stays as it is, without a policy: a NodeStartup lists it, and nothing starts on its
// node for now. It is not wanted there before that, so it uses up no limit.
func (j *judgement) held() bool {
	rules := j.spec.Placement
	return !j.guided && j.cell.eligibility == placement.ShouldContinueRunning && rules.Listed() &&
		rules.Waits(j.cell.column.Node) != ""
}
