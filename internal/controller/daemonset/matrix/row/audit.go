package row

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Audit is a look at all nodes of a row, a few at a time, that mends what differs from the running state. Between two
// steps anything may happen to the row; what drifts meanwhile in a cell that was looked at is found the next time.
type Audit struct {
	row *Row
	// names are the nodes that there were when it began and are still to be looked at, then the others with cells.
	names, cells []string
	findings     []string
}

// NewAudit begins an audit of the row, the one of that number, which is not 0, and not that of the last one. Nodes are
// looked at in the order of the names.
func (r *Row) NewAudit(number uint8, names []string) *Audit {
	r.sums = &sums{run: number}
	return &Audit{row: r, names: names, cells: slices.Collect(maps.Keys(r.cells))}
}

// Step looks at one node, or at the end at the totals; false when it has done so.
func (a *Audit) Step(now time.Time) bool {
	r := a.row
	r.now = now
	switch {
	case len(a.names) > 0:
		a.look(a.names[0])
		a.names = a.names[1:]
	case len(a.cells) > 0:
		if name := a.cells[0]; r.columns[name] == nil || r.cells[name] != nil && !a.counted(r.cells[name]) {
			a.look(name)
		}
		a.cells = a.cells[1:]
	default:
		a.end()
		return false
	}
	return true
}

// Findings has a line per difference that was found; any is a bug.
func (a *Audit) Findings() []string { return a.findings }

// sums is what an audit has added up of a row's cells. What happens meanwhile to a cell
// that it has counted, it follows.
type sums struct {
	run    uint8
	totals totals
	work   [workCount]int
	named  [countCount]int
}

func (s *sums) add(v *verdict, sign int) {
	s.totals.add(v.counts, int32(sign))
	s.work[v.work] += sign
	for _, g := range groups {
		if v.counts.has(g) {
			s.named[g] += sign
		}
	}
}

func (a *Audit) counted(c *cell) bool { return c.audited == a.row.sums.run }

func (a *Audit) report(format string, args ...any) {
	a.findings = append(a.findings, a.row.info.Namespace+"/"+a.row.info.Name+": "+fmt.Sprintf(format, args...))
}

// look checks one cell: that it has its node, what placement says about that, and its verdict.
func (a *Audit) look(name string) {
	r := a.row
	if c := r.cells[name]; c != nil && !a.counted(c) {
		c.audited = r.sums.run
		r.sums.add(&c.verdict, 1)
	}
	a.node(name, r.columns[name])
	c := r.cells[name]
	if c == nil {
		return
	}
	if is, until := r.judged(c); is != c.verdict || !until.Equal(c.wake()) {
		a.report("cell %s was %+v until %s, is %+v until %s", name, c.verdict, c.wake(), is, until)
		r.refresh(c)
	}
}

// judged is what would follow for a cell, and until when.
func (r *Row) judged(c *cell) (verdict, time.Time) {
	j := r.judge(c, r.order(c.node))
	if r.guide == nil {
		return j.verdict, j.wake
	}
	_, until := r.facts(c)
	return j.verdict, deadline.Sooner(j.wake, until)
}

func (a *Audit) node(name string, col *Column) {
	r, c := a.row, a.row.cells[name]
	switch {
	case col == nil && (c == nil || c.column == nil):
	case col == nil:
		a.report("node %s is gone and was not known to be", name)
		r.judgeNode(name, nil)
	case c == nil && r.rules.Eligible(r.wanted(name), col.Node, false) == placement.ShouldRun ||
		c != nil && (c.column != col || c.newest != r.newest(col) || c.eligibility != r.eligibility(c, r.order(name))):
		a.report("node %s was judged wrongly", name)
		r.judgeNode(name, col)
	}
}

// end compares what is kept running of the row with what was added up.
func (a *Audit) end() {
	r, s := a.row, a.row.sums
	if s.totals != r.totals {
		a.report("totals were %+v, are %+v", r.totals, s.totals)
	}
	for w := workRemove; w < workCount; w++ {
		if r.work[w].Len() != s.work[w] {
			a.report("%d cells wanted work %d, are %d", r.work[w].Len(), w, s.work[w])
		}
	}
	for _, g := range groups {
		if r.groups[g].Len() != s.named[g] {
			a.report("%d cells were in group %d, are %d", r.groups[g].Len(), g, s.named[g])
		}
	}
	if *nothing != (tries{}) {
		a.report("what all cells share was written to: %+v", *nothing)
	}
	if len(a.findings) > 0 {
		r.totals = s.totals
		r.collect()
	}
	r.sums = nil
}

// collect fills the sets of cells from nothing.
func (r *Row) collect() {
	for w := workRemove; w < workCount; w++ {
		r.work[w].Clear(false)
	}
	for _, g := range groups {
		r.groups[g].Clear(false)
	}
	for _, c := range r.cells {
		if w := c.verdict.work; w != workNone {
			r.work[w].ReplaceOrInsert(c)
		}
		for _, g := range groups {
			if c.verdict.counts.has(g) {
				r.groups[g].ReplaceOrInsert(c)
			}
		}
	}
}
