package matrix

import "maps"

// Placements are the placement rules of revisions, by hash. They do not change.
type Placements struct{ ByRevision map[string]*Placement }

// same tells whether both say the same.
func (p *Placements) same(o *Placements) bool {
	if p == nil || o == nil {
		return p == o
	}
	return maps.EqualFunc(p.ByRevision, o.ByRevision, func(a, b *Placement) bool { return a.key == b.key })
}

// placementOf returns the placement rules of a revision, nil if they are not known.
func (r *row) placementOf(revision string) *Placement {
	switch {
	case revision == r.info.Revision:
		return r.info.Placement
	case r.info.Earlier == nil:
		return nil
	}
	return r.info.Earlier.ByRevision[revision]
}

// eligible is what the rules of the newest revision say about a node.
func (r *row) eligible(col *column) Eligibility {
	if col == nil {
		return ShouldNotRun
	}
	eligibility, _ := r.info.Placement.judge(col.node)
	return eligibility
}

// eligibleBy is what the rules of a revision say. Of one that cannot be read pods stay; where there
// is none, the rules of the newest stand in: a daemon that is missing must show.
func (r *row) eligibleBy(revision, node string) Eligibility {
	p, col, c := r.placementOf(revision), r.columns[node], r.cells[node]
	switch {
	case col == nil:
		return ShouldNotRun
	case p == nil && c != nil && len(c.pods) > 0:
		return ShouldContinueRunning
	case p == nil:
		return r.eligible(col)
	case c != nil && c.column == col && p.key == r.info.Placement.key:
		return c.newest
	}
	eligibility, _ := p.judge(col.node)
	return eligibility
}

// Selects tells whether the rules of a revision want a daemon on the node. A node that is
// only marked as out of order is still one of the fleet.
func (r *row) Selects(revision, node string) bool {
	switch r.eligibleBy(revision, node) {
	case ShouldRun:
		return true
	case ShouldContinueRunning:
		p := r.placementOf(revision)
		return p == nil || r.cells[node].waitsForNode(p)
	}
	return false
}

// Readable tells whether the template of a revision is known.
func (r *row) Readable(revision string) bool { return r.placementOf(revision) != nil }

// wanted is the revision by whose rules a node is judged: the one that it is to have.
func (r *row) wanted(node string) string {
	if r.guide != nil {
		if target := r.guide.course.Order(node).Target; target != "" {
			return target
		}
	}
	return r.info.Revision
}

// eligibility is what the placement rules say about a cell. Under a policy those of the
// revision that the node is to have say it. A pod that fits by the rules of its own
// revision was left out by a change of the template: it stays until it is its turn to go.
func (r *row) eligibility(c *cell) Eligibility {
	if r.guide == nil || c.column == nil {
		return c.newest
	}
	want := r.wanted(c.node)
	e := r.eligibleBy(want, c.node)
	switch {
	case e == ShouldRun || r.Selects(want, c.node):
		return e
	case r.guide.course.Order(c.node).Change:
		return ShouldNotRun
	case e == ShouldNotRun && r.fitsItself(c):
		return ShouldContinueRunning
	}
	return e
}

// fitsItself tells whether a pod of the cell is where its own revision wants it, or while a
// change is under way lets it stay. After that no turn would ever come.
func (r *row) fitsItself(c *cell) bool {
	for _, p := range c.pods {
		if p.live() && (r.Selects(p.info.Revision, c.node) || r.guide.course.Order(c.node).Changing && r.eligibleBy(p.info.Revision, c.node) != ShouldNotRun) {
			return true
		}
	}
	return false
}

// leftOut says why the revision that the node is to have leaves it out.
func (r *row) leftOut(node string) string {
	p, col := r.placementOf(r.wanted(node)), r.columns[node]
	if p == nil || col == nil {
		return ""
	}
	_, why := p.judge(col.node)
	return why
}

// cellOf returns the cell of a node, which is made if the node is to have a daemon; nil
// if it is not.
func (r *row) cellOf(node string) *cell {
	c, col := r.cells[node], r.columns[node]
	if c != nil || col == nil || r.eligibleBy(r.wanted(node), node) != ShouldRun {
		return c
	}
	c = r.addCell(node)
	c.column, c.newest = col, r.eligible(col)
	return c
}
