package matrix

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// audit is an audit under way.
type audit struct {
	// rows are still to be looked at; columns are the nodes that there were when it began.
	rows    []types.UID
	columns []string
	// is looks at the row of.
	is *row.Audit
	of *entry
}

// AuditSlice judges the next few cells once more, and mends what differs from the running
// state; when all of a row have been looked at, also its totals. It returns a line per
// difference; any is a bug. Done tells that it has come to the end: the next call begins
// from the start. Between two calls anything may happen; what drifts meanwhile in a cell that was
// looked at is found the next time.
func (m *Matrix) AuditSlice(most int) (findings []string, done bool) {
	if m.audit == nil {
		m.audits = max(m.audits+1, 1) // 0 is that of no cell
		m.audit = &audit{rows: slices.Sorted(maps.Keys(m.rows)), columns: slices.Collect(maps.Keys(m.columns))}
	}
	for range most {
		found, more := m.auditOne(m.audit)
		if findings = append(findings, found...); !more {
			m.audit = nil
			return findings, true
		}
	}
	return findings, false
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

// auditOne looks at one node of a row; more is false at the end. What it finds is told with the row's totals.
func (m *Matrix) auditOne(a *audit) (findings []string, more bool) {
	switch {
	case a.of != nil && m.rows[a.of.Info().UID] != a.of:
		a.of = nil // it was deleted
	case a.of != nil:
		if a.is.Step(m.now) {
			return nil, true
		}
		findings = a.is.Findings()
		if len(findings) > 0 {
			m.tell(a.of, row.Touched{})
		}
		a.of = nil
	case len(a.rows) == 0:
		return nil, false
	default:
		if r := m.rows[a.rows[0]]; r != nil {
			a.of, a.is = r, r.NewAudit(m.audits, a.columns)
		}
		a.rows = a.rows[1:]
	}
	return findings, true
}
