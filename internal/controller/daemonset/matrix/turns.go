package matrix

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Ready returns what is to be done now, each action once: it is in flight from
// here until its Answer. Rows that nothing happened to are not looked at.
func (m *Matrix) Ready() []action.Action {
	if len(m.dirty) == 0 {
		return nil
	}
	m.wakeSharers()
	rows := m.dirty
	m.dirty = nil
	slices.SortFunc(rows, m.inTurn)
	var out []action.Action
	for _, r := range rows {
		r.dirty = false
		if m.rows[r.Info().UID] == r {
			out = append(out, m.takeTurn(r)...)
			m.timers.Set(&r.timer, m.next(r))
		}
	}
	return out
}

// inTurn orders rows that share a pace: who took longest ago goes first.
func (m *Matrix) inTurn(a, b *entry) int {
	is, other := a.Info(), b.Info()
	return cmp.Or(cmp.Compare(m.turn(a), m.turn(b)), cmp.Compare(is.Namespace, other.Namespace),
		cmp.Compare(is.Name, other.Name), cmp.Compare(is.UID, other.UID))
}

// turn is the row's last turn in its pace. What it took from that of a policy which it followed before does not count.
func (m *Matrix) turn(r *entry) int {
	if r.took == nil || r.took != m.pace(r) {
		return 0
	}
	return r.turn
}

// paceOf is the pace of a policy.
func (m *Matrix) paceOf(policy types.UID) *pace {
	p := m.paces[policy]
	if p == nil {
		p = &pace{}
		m.paces[policy] = p
	}
	return p
}

// pace is that of the row's policy; nil if its changes follow none.
func (m *Matrix) pace(r *entry) *pace {
	if policy, follows := r.Policy(); follows {
		return m.paceOf(policy)
	}
	return nil
}

// takeTurn has the row act, and takes what begins off the pace that it shares.
func (m *Matrix) takeTurn(r *entry) []action.Action {
	p := m.pace(r)
	if p == nil {
		return r.Step(m.now, row.Turn{}).Actions
	}
	did := r.Step(m.now, row.Turn{Allowed: p.allows(m.now)})
	if did.Begun > 0 {
		r.turn, r.took = p.spend(did.Begun), p
	}
	return did.Actions
}

// next is when time alone brings the row something to do, if ever: its own, or its turn.
func (m *Matrix) next(r *entry) time.Time {
	at := r.Next()
	if !r.WantsPace() || r.Course().Returns() {
		return at
	}
	if p := m.pace(r); p.allows(m.now) == 0 {
		at = deadline.Sooner(at, p.next())
	}
	return at
}

// wakeSharers has all rows that share a pace be looked at together when one of them could take from it:
// who is woken a moment before the others would take it all.
func (m *Matrix) wakeSharers() {
	paces := map[*pace]bool{}
	for _, r := range m.dirty {
		if !r.WantsPace() {
			continue
		}
		if p := m.pace(r); p.limited() && p.allows(m.now) > 0 {
			paces[p] = true
		}
	}
	if len(paces) == 0 {
		return
	}
	for _, r := range m.rows {
		if !r.dirty && r.WantsPace() && paces[m.pace(r)] {
			m.tell(r, row.Touched{})
		}
	}
}
