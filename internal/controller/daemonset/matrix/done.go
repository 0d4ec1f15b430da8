package matrix

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Created brings back that an action has made a pod, or found it made.
func (m *Matrix) Created(a *CreatePod, pod types.UID) { m.done(a, OK, pod) }

// Done brings back what became of an action. For a creation that succeeded use
// Created.
func (m *Matrix) Done(a Action, o Outcome) { m.done(a, o, "") }

func (m *Matrix) done(a Action, o Outcome, pod types.UID) {
	r := m.rows[a.Row()]
	if r == nil {
		return
	}
	m.touch(r)
	switch a := a.(type) {
	case *CreatePod:
		m.created(r, a, o, pod)
	case *DeletePod:
		m.deleted(r, a, o)
	case *UpdateStatus:
		m.statusWritten(r, a, o)
	}
}

func (m *Matrix) created(r *row, a *CreatePod, o Outcome, pod types.UID) {
	r.creates = max(0, r.creates-1)
	switch o {
	case OK:
		r.createFailures = 0
		r.window = min(r.window+1, m.cfg.BurstReplicas)
	case Failed, Unknown, Gone:
		r.window = 1
		if !r.createRetryAt.After(m.now) {
			r.createFailures++
			r.createRetryAt = m.now.Add(backoff(m.cfg.RetryDelay, m.cfg.MaxRetryDelay, r.createFailures))
		}
	}
	c := r.cells[a.Node]
	if c == nil || c.creating.name != a.PodName || c.creating.answered {
		return
	}
	m.answer(c, o, pod)
	m.refresh(c)
}

// answer settles the cell's creation in flight.
func (m *Matrix) answer(c *cell, o Outcome, pod types.UID) {
	name := c.creating.name
	switch o {
	case OK:
		c.unanswered, c.unansweredUntil = "", time.Time{}
		if m.pods[pod] != nil || c.predecessor == pod {
			c.creating = creation{}
			return
		}
		c.creating.answered, c.creating.uid, c.creating.until = true, pod, m.now.Add(m.cfg.SeenTimeout)
		return
	case Unknown:
		c.unanswered, c.unansweredUntil = name, m.now.Add(m.cfg.ExpectationsTimeout)
	case NameTaken:
		c.unanswered, c.unansweredUntil = "", time.Time{}
		c.nameAttempt++
	}
	c.creating = creation{}
}

func (m *Matrix) deleted(r *row, a *DeletePod, o Outcome) {
	r.deletes = max(0, r.deletes-1)
	p := m.pods[a.PodUID]
	if p == nil || p.cell == nil {
		return
	}
	c := p.cell
	if o != Failed && o != Unknown {
		c.deleteFailures, p.unsureUntil = 0, time.Time{}
		return
	}
	p.doomedUntil = time.Time{}
	if o == Unknown && !p.info.Terminating {
		p.unsureUntil = m.now.Add(m.cfg.ExpectationsTimeout)
	}
	c.deleteFailures++
	c.retryAt = m.now.Add(backoff(m.cfg.RetryDelay, m.cfg.MaxRetryDelay, c.deleteFailures))
	m.refresh(c)
}
