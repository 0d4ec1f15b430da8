package matrix

import "fmt"

// Audit judges every cell anew, adds the totals up from nothing, and mends what
// differs from the running state. It returns a line per difference; any is a
// bug. It costs as much as there are cells and nodes.
func (m *Matrix) Audit() []string {
	var findings []string
	for _, r := range m.rows {
		findings = append(findings, m.auditRow(r)...)
	}
	return findings
}

func (m *Matrix) auditRow(r *row) []string {
	var findings []string
	report := func(format string, args ...any) {
		findings = append(findings, r.info.Namespace+"/"+r.info.Name+": "+fmt.Sprintf(format, args...))
	}
	for name, col := range m.columns {
		eligibility, _ := r.info.Placement.judge(col.node)
		if c := r.cells[name]; (c == nil && eligibility == ShouldRun) || (c != nil && (c.column != col || c.eligibility != eligibility)) {
			report("node %s was judged wrongly", name)
			m.judgeNode(r, name, col)
		}
	}
	var totals tally
	var phases [phaseCount]int
	var work [workCount]int
	for name, c := range r.cells {
		if c.column != m.columns[name] {
			report("node %s was taken for one that is gone", name)
			m.judgeNode(r, name, m.columns[name])
		}
		c.expire(m.now)
		if v, _ := judge(c, m.now); v != c.verdict {
			report("cell %s was %s, is %s", name, c.verdict.phase, v.phase)
			m.refresh(c)
		}
		totals.add(&c.verdict.tally, 1)
		phases[c.verdict.phase]++
		work[c.verdict.work]++
	}
	if totals != r.totals {
		report("totals were %+v, are %+v", r.totals, totals)
		r.totals = totals
		m.touch(r)
	}
	if phases != r.phases {
		report("phases were %v, are %v", r.phases, phases)
		r.phases = phases
	}
	for w := workRemove; w < workCount; w++ {
		if r.work[w].Len() == work[w] {
			continue
		}
		report("%d cells wanted work %d, are %d", r.work[w].Len(), w, work[w])
		r.work[w].Clear(false)
		for _, c := range r.cells {
			if c.verdict.work == w {
				r.work[w].ReplaceOrInsert(c)
			}
		}
		m.touch(r)
	}
	return findings
}
