package matrix

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/deadline"
)

// pace bounds the creations of one kind.
type pace struct {
	window   int // that may be in flight: the slow start
	inFlight int
	until    time.Time // after a failure, none before that
	moved    time.Time // when one was last begun or answered
}

// slowAnswer is how long creations that get no answer hold up the next one.
const slowAnswer = time.Second

func (p *pace) open(now time.Time) bool { return p.inFlight < p.window && !p.until.After(now) }

// next returns when the pace allows another creation by time alone.
func (p *pace) next() time.Time {
	if p.inFlight < p.window {
		return p.until
	}
	return p.moved.Add(slowAnswer)
}

// yield has a creation without an answer hold up no other for long.
func (p *pace) yield(now time.Time) {
	if p.inFlight >= p.window && !p.next().After(now) {
		p.window, p.moved = p.inFlight+1, now
	}
}

func (p *pace) begin(now time.Time) { p.inFlight, p.moved = p.inFlight+1, now }

func (p *pace) end(now time.Time) { p.inFlight, p.moved = max(0, p.inFlight-1), now }

// paceOf is the pace of a policy.
func (m *Matrix) paceOf(policy types.UID) *course.Pace {
	p := m.paces[policy]
	if p == nil {
		p = &course.Pace{}
		m.paces[policy] = p
	}
	return p
}

// readyAtPace returns what is to be done for the row, and takes what begins off the pace that it shares.
func (m *Matrix) readyAtPace(r *row, out []Action) []Action {
	g := r.guide
	if g == nil {
		return r.ready(out)
	}
	p := m.paceOf(g.info.PolicyUID)
	g.allowed, g.begun = p.Allows(m.now), 0
	out = r.ready(out)
	if g.begun > 0 {
		g.turn = p.Spend(g.begun)
	}
	return out
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
			m.enter(r)
		}
	}
}
