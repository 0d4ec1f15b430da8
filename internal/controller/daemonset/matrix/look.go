package matrix

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
)

// Order is what is to be on a node, as the rollout of a DaemonSet has it; false if its
// changes follow no policy.
func (m *Matrix) Order(uid types.UID, node string) (course.Order, bool) {
	r := m.rows[uid]
	if r == nil || r.guide == nil {
		return course.Order{}, false
	}
	return r.guide.course.Order(node), true
}
