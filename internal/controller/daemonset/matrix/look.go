package matrix

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
)

// StepOf is the name of the step that a node belongs to in the rollout of a DaemonSet; "" if
// there is none.
func (m *Matrix) StepOf(uid types.UID, node string) string {
	if r := m.rows[uid]; r != nil && r.guide != nil {
		return r.guide.course.StepOf(node)
	}
	return ""
}

// Selects reports whether the placement rules of a DaemonSet's revision want a daemon on a node.
func (m *Matrix) Selects(uid types.UID, revision, node string) bool {
	r := m.rows[uid]
	if r == nil || r.columns[node] == nil {
		return false
	}
	c := r.cells[node]
	return r.rules.Selects(revision, r.columns[node].node, c != nil && len(c.pods) > 0)
}

// Order is what is to be on a node, as the rollout of a DaemonSet has it; false if its
// changes follow no policy.
func (m *Matrix) Order(uid types.UID, node string) (course.Order, bool) {
	r := m.rows[uid]
	if r == nil || r.guide == nil {
		return course.Order{}, false
	}
	return r.guide.course.Order(node), true
}
