package matrix

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/deadline"
)

// AuditSlice judges the next few cells anew, and mends what differs from the running
// state; when all of a row have been looked at, also its totals. It returns a line per
// difference; any is a bug. Done tells that it has come to the end: the next call begins
// anew. Between two calls anything may happen; what drifts meanwhile in a cell that was
// looked at is found the next time.
func (m *Matrix) AuditSlice(most int) (findings []string, done bool) {
	if m.audit == nil {
		m.audits = max(m.audits+1, 1) // 0 is that of no cell
		m.audit = &audit{matrix: m, rows: slices.Sorted(maps.Keys(m.rows)), columns: slices.Collect(maps.Keys(m.columns))}
	}
	a := m.audit
	for range most {
		if done = !a.step(); done {
			m.audit = nil
			break
		}
	}
	findings, a.findings = a.findings, nil
	return findings, done
}

// Audit looks at everything at once. It costs as much as there are cells and nodes.
func (m *Matrix) Audit() (findings []string) {
	for m.audit = nil; ; {
		found, done := m.AuditSlice(1 << 10)
		if findings = append(findings, found...); done {
			return findings
		}
	}
}

// audit is an audit under way.
type audit struct {
	matrix *Matrix
	// rows are still to be looked at; columns are the nodes that there were when it began.
	rows    []types.UID
	columns []string
	// row is looked at, and of it the nodes that were columns and then, in cells, the others.
	row      *row
	names    []string
	cells    []string
	findings []string
	drifted  bool // in the row
}

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

// step looks at one node of a row; false at the end.
func (a *audit) step() bool {
	switch {
	case a.row != nil && a.matrix.rows[a.row.info.UID] != a.row:
		a.row = nil // it was deleted
	case a.row != nil && len(a.names) > 0:
		a.look(a.names[0])
		a.names = a.names[1:]
	case a.row != nil && len(a.cells) > 0:
		if name := a.cells[0]; a.matrix.columns[name] == nil || a.row.cells[name] != nil && !a.counted(a.row.cells[name]) {
			a.look(name)
		}
		a.cells = a.cells[1:]
	case a.row != nil:
		a.end()
	case len(a.rows) == 0:
		return false
	default:
		a.begin(a.matrix.rows[a.rows[0]])
		a.rows = a.rows[1:]
	}
	return true
}

func (a *audit) begin(r *row) {
	if r == nil {
		return // it was deleted
	}
	a.row, a.names, a.cells, a.drifted = r, a.columns, slices.Collect(maps.Keys(r.cells)), false
	r.sums = &sums{run: a.matrix.audits}
}

func (a *audit) counted(c *cell) bool { return c.audited == a.row.sums.run }

func (a *audit) report(format string, args ...any) {
	a.drifted = true
	a.findings = append(a.findings, a.row.info.Namespace+"/"+a.row.info.Name+": "+fmt.Sprintf(format, args...))
}

// look checks one cell: that it has its node, what placement says about that, and its verdict.
func (a *audit) look(name string) {
	r, col := a.row, a.matrix.columns[name]
	r.now = a.matrix.now
	if c := r.cells[name]; c != nil && !a.counted(c) {
		c.audited = r.sums.run
		r.sums.add(&c.verdict, 1)
	}
	a.node(name, col)
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
func (r *row) judged(c *cell) (verdict, time.Time) {
	j := r.judge(c, r.order(c.node))
	if r.guide == nil {
		return j.verdict, j.wake
	}
	_, until := r.facts(c)
	return j.verdict, deadline.Sooner(j.wake, until)
}

func (a *audit) node(name string, col *column) {
	r, c := a.row, a.row.cells[name]
	switch {
	case col == nil && (c == nil || c.column == nil):
	case col == nil:
		a.report("node %s is gone and was not known to be", name)
		r.judgeNode(name, nil)
	case c == nil && r.rules.Eligible(r.wanted(name), col.node, false) == placement.ShouldRun ||
		c != nil && (c.column != col || c.newest != r.newest(col) || c.eligibility != r.eligibility(c, r.order(name))):
		a.report("node %s was judged wrongly", name)
		r.judgeNode(name, col)
	}
}

// end compares what is kept running of the row with what was added up.
func (a *audit) end() {
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
	if a.drifted {
		r.totals = s.totals
		r.collect()
		a.matrix.tell(r, touched{})
	}
	r.sums, a.row = nil, nil
}

// collect fills the sets of cells from nothing.
func (r *row) collect() {
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
