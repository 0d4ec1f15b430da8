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
	p := r.paceOf(a)
	p.end(m.now)
	c := r.cells[a.Node]
	if c != nil && c.creating.name == a.PodName && !c.creating.answered {
		m.answer(c, o, pod)
		m.refresh(c)
	}
	m.adjust(r, p, o)
}

// adjust has a success raise the pace and a failure begin the slow start anew,
// after a pause. Cells that keep failing are tried the less often the more there
// are: together they cost as much as one.
func (m *Matrix) adjust(r *row, p *pace, o Outcome) {
	switch o {
	case OK:
		p.window, p.until = min(p.window+1, m.cfg.BurstReplicas), time.Time{}
	case Failed, Unknown, Gone:
		p.window = 1
		if p.until.After(m.now) {
			return
		}
		p.until = m.now.Add(m.cfg.RetryDelay)
		if p == &r.again {
			p.until = m.now.Add(min(m.cfg.RetryDelay*time.Duration(max(1, r.totals.troubled)), m.cfg.MaxRetryDelay))
		}
	}
}

// answer settles the cell's creation in flight.
func (m *Matrix) answer(c *cell, o Outcome, pod types.UID) {
	name := c.creating.name
	switch o {
	case OK:
		c.answer()
		if m.pods[pod] != nil || c.creating.left == pod {
			c.creating = creation{}
			return
		}
		c.creating.answered, c.creating.uid, c.creating.until = true, pod, m.now.Add(m.cfg.SeenTimeout)
		return
	case Unknown:
		if c.creating.seen {
			c.answer()
			break
		}
		c.unanswered, c.unansweredUntil = name, m.now.Add(m.cfg.ExpectationsTimeout)
		c.setback.failed(m.now, &m.cfg)
	case Failed, Gone:
		c.setback.failed(m.now, &m.cfg)
	case NameTaken:
		c.unanswered, c.unansweredUntil = "", time.Time{}
		c.taken++
		c.setback.failed(m.now, &m.cfg)
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
		c.deletions, p.unsureUntil = setback{}, time.Time{}
		return
	}
	p.doomedUntil = time.Time{}
	if o == Unknown && !p.info.Terminating {
		p.unsureUntil = m.now.Add(m.cfg.ExpectationsTimeout)
	}
	c.deletions.failed(m.now, &m.cfg)
	m.refresh(c)
}
