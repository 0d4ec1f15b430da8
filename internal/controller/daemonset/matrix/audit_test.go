package matrix

import (
	"testing"
	"time"
)

// Whatever is broken inside, the audit names it once and puts it right.
func TestAuditMends(t *testing.T) {
	breakages := map[string]func(*row){
		"a total":       func(r *row) { r.totals[ready] += 5 },
		"a work set":    func(r *row) { r.work[workReplace].Clear(false) },
		"a group":       func(r *row) { r.groups[lacking].ReplaceOrInsert(r.cells["node-00003"]) },
		"a verdict":     func(r *row) { r.place(r.cells["node-00003"], verdict{work: workSurge}) },
		"a timer":       func(r *row) { r.timers.Set(&r.cells["node-00003"].timer, r.now.Add(time.Hour)) },
		"a judgement":   func(r *row) { r.cells["node-00003"].eligibility = ShouldNotRun },
		"a lost cell":   func(r *row) { delete(r.cells, "node-00003") },
		"a lost column": func(r *row) { r.cells["node-00003"].column = nil },
	}
	for name, destroy := range breakages {
		t.Run(name, func(t *testing.T) {
			m, _ := fleet(10)
			info := m.rows["logs"].info
			info.Generation, info.Revision = 2, "b"
			m.Step(info)
			destroy(m.rows["logs"])
			if findings := m.Audit(); len(findings) == 0 {
				t.Fatal("the audit found nothing")
			}
			if findings := m.Audit(); len(findings) != 0 {
				t.Errorf("a second audit still finds %q", findings)
			}
		})
	}
}
