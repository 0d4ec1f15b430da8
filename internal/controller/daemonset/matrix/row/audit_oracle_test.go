package row

import (
	"fmt"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// wholeAudit judges every cell and adds the totals up from nothing, in one go.
func wholeAudit(r *Row) []string {
	a := whole{row: r}
	a.nodes()
	a.cells()
	a.totals()
	return a.findings
}

type whole struct {
	row      *Row
	findings []string
}

func (a *whole) report(format string, args ...any) {
	a.findings = append(a.findings, a.row.info.Namespace+"/"+a.row.info.Name+": "+fmt.Sprintf(format, args...))
}

// nodes checks that every cell has its node and what placement says about it.
func (a *whole) nodes() {
	for name, col := range a.row.columns {
		newest, c := a.row.newest(col), a.row.cells[name]
		if c == nil && a.row.rules.Eligible(a.row.wanted(name), col.Node, false) != placement.ShouldRun ||
			c != nil && c.column == col && c.newest == newest &&
				c.eligibility == a.row.eligibility(c, a.row.order(name)) {
			continue
		}
		a.report("node %s was judged wrongly", name)
		a.row.judgeNode(name, col)
	}
	for name, c := range a.row.cells {
		if c.column != a.row.columns[name] {
			a.report("node %s is gone and was not known to be", name)
			a.row.judgeNode(name, nil)
		}
	}
}

// cells checks every verdict.
func (a *whole) cells() {
	for name, c := range a.row.cells {
		if is, until := a.row.judged(c); is != c.verdict || !until.Equal(c.wake()) {
			a.report("cell %s was %+v until %s, is %+v until %s", name, c.verdict, c.wake(), is, until)
			a.row.refresh(c)
		}
	}
}

// totals checks what is kept running per row.
func (a *whole) totals() {
	var totals totals
	var work [workCount]int
	var named [countCount]int
	r := a.row
	for _, c := range r.cells {
		totals.add(c.verdict.counts, 1)
		work[c.verdict.work]++
		for _, g := range groups {
			if c.verdict.counts.has(g) {
				named[g]++
			}
		}
	}
	if totals != r.totals {
		a.report("totals were %+v, are %+v", r.totals, totals)
	}
	for w := workRemove; w < workCount; w++ {
		if r.work[w].Len() != work[w] {
			a.report("%d cells wanted work %d, are %d", r.work[w].Len(), w, work[w])
		}
	}
	for _, g := range groups {
		if r.groups[g].Len() != named[g] {
			a.report("%d cells were in group %d, are %d", r.groups[g].Len(), g, named[g])
		}
	}
	if len(a.findings) == 0 {
		return
	}
	r.totals = totals
	r.collect()
}
