package matrix

import "time"

// readyStatus asks for a status write when the totals differ from what the API
// shows: at once when the row was quiet, has settled, or acts on a generation
// that is not reported yet; else paced.
func (m *Matrix) readyStatus(r *row, out []Action) []Action {
	want := r.status()
	if r.statusInFlight || want == r.info.Reported || m.statusDue(r).After(m.now) {
		return out
	}
	r.statusInFlight, r.statusAt = true, m.now
	return append(out, &UpdateStatus{Target: r.target(), Status: want})
}

// statusDue returns the earliest moment for the next status write.
func (m *Matrix) statusDue(r *row) time.Time {
	if r.statusRetryAt.After(m.now) {
		return r.statusRetryAt
	}
	observed := r.info.Reported.ObservedGeneration == r.info.Generation
	if r.statusAt.IsZero() || r.settled() || !observed {
		return m.now
	}
	return r.statusAt.Add(m.cfg.StatusInterval)
}

func (m *Matrix) statusWritten(r *row, a *UpdateStatus, o Outcome) {
	r.statusInFlight = false
	if o == OK {
		r.info.Reported = a.Status
		r.statusFailures, r.statusRetryAt = 0, time.Time{}
		return
	}
	r.statusFailures++
	r.statusRetryAt = m.now.Add(backoff(m.cfg.RetryDelay, m.cfg.MaxRetryDelay, r.statusFailures))
}

// armRow sets the row's timer to the moment when Ready would do more for it.
func (m *Matrix) armRow(r *row) {
	var at time.Time
	if !r.statusInFlight && r.status() != r.info.Reported {
		at = m.statusDue(r)
	}
	if r.createRetryAt.After(m.now) {
		at = sooner(at, r.createRetryAt)
	}
	m.timers.set(&r.timer, at)
}
