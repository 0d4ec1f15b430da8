package row

import (
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// readyStatus asks for a status write when the totals or the conditions differ from what the API shows: at once when
// the row was quiet, acts on a generation that is not reported yet, or has settled for the first time in it; else
// paced. Conditions are compared with those last written, so that an API that does not keep them is not written to
// again and again.
func (r *Row) readyStatus(out []action.Action) []action.Action {
	r.progress.observe(r, r.now)
	r.unsaid = false
	if r.statusInFlight {
		return out
	}
	want, later := r.Status(), r.statusDue().After(r.now)
	r.unsaid = want != r.info.Reported
	if r.unsaid && later {
		return out // without making words that nobody reads
	}
	conditions := r.Conditions()
	r.unsaid = r.unsaid || conditions != r.written
	if !r.unsaid || later {
		return out
	}
	r.statusInFlight, r.statusAt = true, r.now
	if r.settled() {
		r.announced = r.info.Generation
	}
	return append(out, &action.UpdateStatus{Target: r.target(), Status: want, Conditions: conditions})
}

// statusDue returns the earliest moment for the next status write.
func (r *Row) statusDue() time.Time {
	if until := r.statusSetback.until; until.After(r.now) {
		return until
	}
	observed := r.info.Reported.ObservedGeneration == r.info.Generation
	if r.statusAt.IsZero() || !observed || r.settled() && r.announced != r.info.Generation {
		return r.now
	}
	return r.statusAt.Add(r.cfg.StatusInterval)
}

func (r *Row) statusWritten(a *action.UpdateStatus, o action.Outcome) {
	r.statusInFlight = false
	if o == action.OK {
		r.info.Reported, r.written, r.statusSetback = a.Status, a.Conditions, setback{}
		return
	}
	r.statusSetback.failed(r.now, r.cfg)
}

// Next returns when time alone has something to do for the row; zero means never.
func (r *Row) Next() time.Time {
	at, _ := r.timers.Next()
	if g := r.guide; g != nil {
		tick, _ := g.course.NextTick()
		at = deadline.Sooner(at, tick)
	}
	return deadline.Sooner(at, r.due)
}

// later returns when there will be more to do for the row itself.
func (r *Row) later() (at time.Time) {
	if !r.statusInFlight && r.unsaid {
		at = r.statusDue()
	}
	waiting := r.work[workCreate].Len()+r.work[workSurge].Len() > 0
	for _, p := range []*pace{&r.fresh, &r.again} {
		if next := p.next(); waiting && next.After(r.now) {
			at = deadline.Sooner(at, next)
		}
	}
	if g := r.guide; g != nil && g.stale && !g.inFlight {
		at = deadline.Sooner(at, g.due(r.cfg))
	}
	if stall := r.standstill(); stall.After(r.now) {
		at = deadline.Sooner(at, stall)
	}
	return at
}
