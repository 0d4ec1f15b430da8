package matrix

import (
	"cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// RulesOn returns the placement rules of the revision that a node is to have of a DaemonSet: by these it gets a daemon,
// or gets none. It is nil if one of both is not known.
func (m *Matrix) RulesOn(uid types.UID, node string) *placement.Rules {
	r := m.rows[uid]
	if r == nil || m.columns[node] == nil {
		return nil
	}
	is := r.Info()
	all, wanted := is.AllRules(), is.Revision
	if order, follows := m.Order(uid, node); follows {
		wanted = cmp.Or(order.Target, wanted)
	}
	return cmp.Or(all.Of(wanted), is.Placement)
}

// Apart reports whether nodes may have a daemon by the rules of an earlier revision that say something else than those
// of the newest, and as of which generation that is so; false if the DaemonSet is not known.
func (m *Matrix) Apart(uid types.UID) (generation int64, apart, known bool) {
	r := m.rows[uid]
	if r == nil {
		return 0, false, false
	}
	return r.Info().Generation, r.Course() != nil && r.Info().Apart(), true
}
