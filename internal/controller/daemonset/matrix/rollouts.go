package matrix

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// updateRollout takes a policy or what people wrote into a rollout in.
func (m *Matrix) updateRollout(info fact.Rollout) {
	if was, known := m.rollouts[info.UID]; known && was.PolicyUID != info.PolicyUID {
		m.forgetRollout(info.UID)
	}
	m.rollouts[info.UID] = info
	if r := m.rows[info.UID]; r != nil {
		m.guide(r, info)
	}
}

// guide has the row follow the rollout, at its policy's pace.
func (m *Matrix) guide(r *entry, info fact.Rollout) {
	if info.Policy != nil {
		m.paceOf(info.PolicyUID).set(info.Policy.NodesPerMinute, m.now)
	}
	m.tell(r, info)
}

func (m *Matrix) deleteRollout(uid types.UID) {
	m.forgetRollout(uid)
	if r := m.rows[uid]; r != nil && r.Course() != nil {
		m.tell(r, fact.RolloutGone(uid))
	}
}

// forgetRollout forgets the rollout of a DaemonSet, and its policy's pace if nobody else goes by that.
func (m *Matrix) forgetRollout(uid types.UID) {
	policy := m.rollouts[uid].PolicyUID
	delete(m.rollouts, uid)
	for _, o := range m.rollouts {
		if o.PolicyUID == policy {
			return
		}
	}
	delete(m.paces, policy)
}

func (m *Matrix) updateHealth(h fact.Health) {
	if m.health[h.Name] == h {
		return
	}
	m.health[h.Name] = h
	if h.Fault == "" {
		delete(m.health, h.Name)
	}
	if col := m.columns[h.Name]; col != nil {
		back := col.Back
		if h.Fault == "" {
			back = m.now
		}
		m.setColumn(h.Name, &row.Column{Info: col.Info, Node: col.Node, Health: h, Back: back})
	}
}

// courseOf is the course of a DaemonSet's rollout; nil if its changes follow no policy.
func (m *Matrix) courseOf(uid types.UID) *course.Course {
	if r := m.rows[uid]; r != nil {
		return r.Course()
	}
	return nil
}

// Makes are the revisions of which pods may still have to be made for the DaemonSet, though none has them.
func (m *Matrix) Makes(uid types.UID) []string {
	if c := m.courseOf(uid); c != nil && c.Started() {
		return c.Makes()
	}
	if st := m.rollouts[uid].Status; st != nil {
		return []string{st.StableRevision, st.TargetRevision}
	}
	return nil
}

// Verdict is where a node stands in the rollout of a DaemonSet, and why; false if
// its changes follow no policy.
func (m *Matrix) Verdict(uid types.UID, node string) (standing.Verdict, string, bool) {
	c := m.courseOf(uid)
	if c == nil {
		return "", "", false
	}
	v, why := c.Verdict(node)
	if m.columns[node] != nil && v == standing.NotSelected {
		why = m.rows[uid].LeftOut(node)
	}
	return v, why, true
}

// MayFetch is how many nodes pods may ask for images at a time where this one is to be asked, and how long each may
// take; false where it is not.
func (m *Matrix) MayFetch(uid types.UID, node string) (atOnce int, patience time.Duration, ok bool) {
	c := m.courseOf(uid)
	if c == nil || c.Order(node).Fetch == standing.NoWish {
		return 0, 0, false
	}
	atOnce, patience = c.MayFetch(node)
	return atOnce, patience, true
}

// Between reports whether a node uses up the limit of a DaemonSet by what is under way there, such as the end of its
// old pod; false if its changes follow no policy.
func (m *Matrix) Between(uid types.UID, node string) bool {
	c := m.courseOf(uid)
	return c != nil && c.Between(node)
}

// Rollout is where the rollout of a DaemonSet stands; false if its changes follow no
// policy, or nothing has been decided yet.
func (m *Matrix) Rollout(uid types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	c := m.courseOf(uid)
	if c == nil || !c.Started() {
		return v1alpha1.DaemonSetRolloutStatus{}, false
	}
	st, is := c.Status(), m.rows[uid].Info()
	if st.TargetRevision == is.Revision {
		st.TargetDigest = is.Digest
	}
	return st, true
}

// StepOf is the name of the step that a node belongs to in the rollout of a DaemonSet; "" if
// there is none.
func (m *Matrix) StepOf(uid types.UID, node string) string {
	if c := m.courseOf(uid); c != nil {
		return c.StepOf(node)
	}
	return ""
}

// Order is what is to be on a node, as the rollout of a DaemonSet has it; false if its
// changes follow no policy.
func (m *Matrix) Order(uid types.UID, node string) (standing.Order, bool) {
	c := m.courseOf(uid)
	if c == nil {
		return standing.Order{}, false
	}
	return c.Order(node), true
}

// Selects reports whether the placement rules of a DaemonSet's revision want a daemon on a node.
func (m *Matrix) Selects(uid types.UID, revision, node string) bool {
	r := m.rows[uid]
	return r != nil && r.Selects(revision, node)
}
