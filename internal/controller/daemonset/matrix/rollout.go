package matrix

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/deadline"
)

// Ready returns what is to be done now, each action once: it is in flight from
// here until Done. Rows that nothing happened to are not looked at.
func (m *Matrix) Ready() []Action {
	if len(m.dirty) == 0 {
		return nil
	}
	m.wakeSharers()
	rows := m.dirty
	m.dirty = nil
	slices.SortFunc(rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.turn(), b.turn()), cmp.Compare(a.info.Namespace, b.info.Namespace),
			cmp.Compare(a.info.Name, b.info.Name), cmp.Compare(a.info.UID, b.info.UID))
	})
	var out []Action
	for _, r := range rows {
		r.dirty = false
		if m.rows[r.info.UID] == r {
			out = append(out, m.takeTurn(r)...)
			m.timers.Set(&r.timer, m.next(r))
		}
	}
	return out
}

// paceOf is the pace of a policy.
func (m *Matrix) paceOf(policy types.UID) *course.Pace {
	p := m.paces[policy]
	if p == nil {
		p = &course.Pace{}
		m.paces[policy] = p
	}
	return p
}

// takeTurn has the row act, and takes what begins off the pace that it shares.
func (m *Matrix) takeTurn(r *row) []Action {
	g := r.guide
	if g == nil {
		return r.step(m.now, turn{}).actions
	}
	p := m.paceOf(g.info.PolicyUID)
	did := r.step(m.now, turn{p.Allows(m.now)})
	if did.begun > 0 {
		g.turn = p.Spend(did.begun)
	}
	return did.actions
}

// next is when time alone brings the row something to do, if ever: its own, or its turn.
func (m *Matrix) next(r *row) time.Time {
	at, g := r.next(), r.guide
	if g == nil || !g.course.Wants() || g.course.Returns() {
		return at
	}
	if p := m.paceOf(g.info.PolicyUID); p.Allows(m.now) == 0 {
		at = deadline.Sooner(at, p.Next())
	}
	return at
}

// wakeSharers has all rows that share a pace be looked at together when one of them could take from it:
// who is woken a moment before the others would take it all.
func (m *Matrix) wakeSharers() {
	paces := map[*course.Pace]bool{}
	for _, r := range m.dirty {
		g := r.guide
		if g == nil || !g.course.Wants() {
			continue
		}
		if p := m.paceOf(g.info.PolicyUID); p.Limited() && p.Allows(m.now) > 0 {
			paces[p] = true
		}
	}
	if len(paces) == 0 {
		return
	}
	for _, r := range m.rows {
		if g := r.guide; g != nil && !r.dirty && paces[m.paceOf(g.info.PolicyUID)] && g.course.Wants() {
			m.tell(r, touched{})
		}
	}
}

// turn orders rows that share a pace: who took longest ago goes first.
func (r *row) turn() int {
	if r.guide == nil {
		return 0
	}
	return r.guide.turn
}

// act returns what is to be done, with so many changes as may begin at the policy's pace.
func (r *row) act(allowed int) (out result) {
	r.due = time.Time{}
	if r.info.Deleting || r.cfg.Guest && r.guide == nil {
		return out
	}
	if !r.info.Held {
		if r.guide != nil {
			out.begun = r.takeTurns(allowed)
		}
		out.actions = r.changePods(nil)
	}
	if r.cfg.Guest {
		out.actions = r.readyRollout(out.actions)
	} else {
		out.actions = r.readyRollout(r.readyStatus(r.placements(out.actions)))
	}
	r.due = r.later()
	return out
}

func (r *row) changePods(out []Action) []Action {
	at := func(n count) int { return int(r.totals[n]) }
	maxUnavailable, maxSurge := r.budget()
	out = r.deletions(out, workRemove, func() bool { return true })
	out = r.deletions(out, workSunset, func() bool { return at(up) > at(desired) })
	if r.fresh.inFlight+r.again.inFlight+r.work[workCreate].Len()+r.work[workSurge].Len() == 0 {
		r.fresh.window, r.again.window = 1, 1
	}
	r.fresh.yield(r.now)
	r.again.yield(r.now)
	out = r.creations(out, workCreate, func() bool { return true })
	out = r.deletions(out, workReplace, func() bool { return at(down) < maxUnavailable })
	return r.creations(out, workSurge, func() bool { return at(surging) < maxSurge })
}

// deletions deletes what is to go, as long as it may.
func (r *row) deletions(out []Action, w work, may func() bool) []Action {
	for r.deletes < r.cfg.BurstReplicas && may() {
		c, ok := r.work[w].Min()
		if !ok {
			break
		}
		for _, rm := range c.todo.removals {
			out = append(out, r.doom(c, rm))
		}
		r.refresh(c)
	}
	return out
}

// creations makes what is missing, as long as it may.
func (r *row) creations(out []Action, w work, may func() bool) []Action {
	for may() {
		c := r.nextCreation(w)
		if c == nil {
			break
		}
		out = append(out, r.create(c, c.todo.why))
	}
	return out
}

// failedBefore is where, in a set of work, the cells begin that failed.
var failedBefore = &cell{verdict: verdict{rank: 1}}

// nextCreation returns the cell that may create next: those that did not fail
// first, the others beside them.
func (r *row) nextCreation(w work) (next *cell) {
	if r.fresh.inFlight+r.again.inFlight >= r.cfg.BurstReplicas {
		return nil
	}
	if r.info.First != NoFirst {
		return r.nextBesideFirst(w)
	}
	if c, ok := r.work[w].Min(); ok && c.verdict.rank == 0 && r.fresh.open(r.now) {
		return c
	}
	if r.again.open(r.now) {
		r.work[w].AscendGreaterOrEqual(failedBefore, func(c *cell) bool { next = c; return false })
	}
	return next
}

// nextBesideFirst is nextCreation while pods of the newest template wait for the first one: those of others do not.
func (r *row) nextBesideFirst(w work) (next *cell) {
	r.work[w].Ascend(func(c *cell) bool {
		p := &r.fresh
		if c.verdict.rank != 0 {
			p = &r.again
		}
		if p.open(r.now) && (r.info.First == FirstIsWanted || !r.getsNewest(c)) {
			next = c
		}
		return next == nil
	})
	return next
}

// getsNewest reports whether the cell's next pod is of the newest template.
func (r *row) getsNewest(c *cell) bool {
	return content.TemplateOf(r.order(c.node).Target) == content.TemplateOf(r.info.Revision)
}

// paceOf returns the pace that a creation goes by.
func (r *row) paceOf(a *CreatePod) *pace {
	if a.again {
		return &r.again
	}
	return &r.fresh
}

func (r *row) doom(c *cell, rm removal) Action {
	if rm.reason == ReasonFailed {
		c.own().failures.next(r.info.Generation, rm.pod.info.Revision, r.now, r.cfg)
	}
	a := &DeletePod{Target: r.target(), Node: c.node, PodName: rm.pod.info.Name, PodUID: rm.pod.info.UID,
		Reason: rm.reason}
	if rm.reason == ReasonNodeUnfit || rm.reason == ReasonTurn {
		a.Detail = r.leftOut(c.node)
	}
	rm.pod.doomedUntil = r.now.Add(r.cfg.ExpectationsTimeout)
	r.deletes++
	return a
}

func (r *row) create(c *cell, why Reason) Action {
	a := &CreatePod{Target: r.target(), Node: c.node, Revision: r.order(c.node).Target, Reason: why,
		again: c.setback.failures > 0}
	if a.PodName = c.unanswered; a.PodName == "" {
		a.PodName = r.freeName(c)
	}
	if r.guide != nil {
		a.Before = r.guide.course.Before(c.node)
	}
	c.own().creating = creation{name: a.PodName, until: r.now.Add(r.cfg.ExpectationsTimeout)}
	r.paceOf(a).begin(r.now)
	if r.info.First == FirstIsWanted && r.getsNewest(c) {
		r.info.First = FirstPulls
	}
	r.refresh(c)
	return a
}

// podName derives a cell's names. The revision is no part of them: a try of an
// older revision may have succeeded without our knowing.
func podName(ds string, uid types.UID, node string, attempt int) string {
	// 27 letters without vowels and look-alikes, as the API server's own
	// generated names; a host name has room for 63 characters.
	const alphabet, digits, room = "bcdfghjklmnpqrstvwxz2456789", 10, 63
	h := sha256.New()
	for _, part := range []string{string(uid), node} {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write([]byte(part))
	}
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(attempt)))
	n := binary.BigEndian.Uint64(h.Sum(nil))
	var b strings.Builder
	prefix := ds + "-"
	b.WriteString(prefix[:min(len(prefix), room-digits)])
	for range digits {
		b.WriteByte(alphabet[n%uint64(len(alphabet))])
		n /= uint64(len(alphabet))
	}
	return b.String()
}
