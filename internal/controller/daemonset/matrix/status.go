package matrix

import "time"

// readyStatus asks for a status write when the totals or the conditions differ
// from what the API shows: at once when the row was quiet, acts on a generation
// that is not reported yet, or has settled for the first time in it; else paced.
// Conditions are compared
// with those last written, so that an API that does not keep them is not
// written to again and again.
func (m *Matrix) readyStatus(r *row, out []Action) []Action {
	r.progress.observe(r, m.now)
	if r.unsaid = false; r.statusInFlight {
		return out
	}
	want, later := r.status(), m.statusDue(r).After(m.now)
	if r.unsaid = want != r.info.Reported; r.unsaid && later {
		return out // without making words that nobody reads
	}
	conditions := m.conditions(r)
	if r.unsaid = r.unsaid || conditions != r.written; !r.unsaid || later {
		return out
	}
	r.statusInFlight, r.statusAt = true, m.now
	if r.settled() {
		r.announced = r.info.Generation
	}
	return append(out, &UpdateStatus{Target: r.target(), Status: want, Conditions: conditions})
}

// statusDue returns the earliest moment for the next status write.
func (m *Matrix) statusDue(r *row) time.Time {
	if r.statusRetryAt.After(m.now) {
		return r.statusRetryAt
	}
	observed := r.info.Reported.ObservedGeneration == r.info.Generation
	if r.statusAt.IsZero() || !observed || r.settled() && r.announced != r.info.Generation {
		return m.now
	}
	return r.statusAt.Add(m.cfg.StatusInterval)
}

func (m *Matrix) statusWritten(r *row, a *UpdateStatus, o Outcome) {
	r.statusInFlight = false
	if o == OK {
		r.info.Reported, r.written = a.Status, a.Conditions
		r.statusFailures, r.statusRetryAt = 0, time.Time{}
		return
	}
	r.statusFailures++
	r.statusRetryAt = m.now.Add(backoff(m.cfg.RetryDelay, m.cfg.MaxRetryDelay, r.statusFailures))
}

// armRow sets the row's timer to the moment when Ready would do more for it.
func (m *Matrix) armRow(r *row) {
	var at time.Time
	if !r.statusInFlight && r.unsaid {
		at = m.statusDue(r)
	}
	waiting := r.work[workCreate].Len()+r.work[workSurge].Len() > 0
	for _, p := range []*pace{&r.fresh, &r.again} {
		if next := p.next(); waiting && next.After(m.now) {
			at = sooner(at, next)
		}
	}
	if stall := m.standstill(r); stall.After(m.now) {
		at = sooner(at, stall)
	}
	m.timers.Set(&r.timer, at)
}
