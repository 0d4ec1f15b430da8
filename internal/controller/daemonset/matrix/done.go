package matrix

import "time"

// answered takes note of what became of an action.
func (r *row) answered(e answered) {
	switch a := e.Action.(type) {
	case *CreatePod:
		r.created(a, e)
	case *DeletePod:
		r.deleted(a, e.Outcome)
	case *UpdateStatus:
		r.statusWritten(a, e.Outcome)
	case *UpdateRollout:
		r.rolloutWritten(a, e.Outcome)
	}
}

func (r *row) created(a *CreatePod, e answered) {
	p := r.paceOf(a)
	p.end(r.now)
	c := r.cells[a.Node]
	if c != nil && c.creating.name == a.PodName && !c.creating.answered {
		r.settleCreation(c, e)
		r.refresh(c)
	}
	r.adjust(p, e.Outcome)
}

// adjust has a success raise the pace and a failure begin the slow start anew,
// after a pause. Cells that keep failing are tried the less often the more there
// are: together they cost as much as one.
func (r *row) adjust(p *pace, o Outcome) {
	switch o {
	case OK:
		p.window, p.until = min(p.window+1, r.cfg.BurstReplicas), time.Time{}
	case Failed, Unknown, Gone:
		p.window = 1
		if p.until.After(r.now) {
			return
		}
		p.until = r.now.Add(r.cfg.RetryDelay)
		if p == &r.again {
			p.until = r.now.Add(min(r.cfg.RetryDelay*time.Duration(max(1, r.totals[troubled])), r.cfg.MaxRetryDelay))
		}
	}
}

// settleCreation settles the cell's creation in flight.
func (r *row) settleCreation(c *cell, e answered) {
	name := c.creating.name
	switch e.Outcome {
	case OK:
		c.answer()
		if e.known || c.creating.left == e.Pod {
			c.creating = creation{}
			return
		}
		c.creating.answered, c.creating.uid, c.creating.until = true, e.Pod, r.now.Add(r.cfg.SeenTimeout)
		return
	case Unknown:
		if c.creating.seen {
			c.answer()
			break
		}
		c.unanswered, c.unansweredUntil = name, r.now.Add(r.cfg.ExpectationsTimeout)
		c.setback.failed(r.now, r.cfg)
	case Failed, Gone:
		c.setback.failed(r.now, r.cfg)
		c.refused = e.Refused
	case NameTaken:
		c.unanswered, c.unansweredUntil = "", time.Time{}
		c.taken++
		c.setback.failed(r.now, r.cfg)
	}
	c.creating = creation{}
}

func (r *row) deleted(a *DeletePod, o Outcome) {
	r.deletes = max(0, r.deletes-1)
	c := r.cells[a.Node]
	if c == nil {
		return
	}
	p := c.pod(a.PodUID)
	if p == nil {
		return
	}
	if o != Failed && o != Unknown {
		if p.unsureUntil = (time.Time{}); c.deletions != (setback{}) {
			c.deletions = setback{}
		}
		return
	}
	p.doomedUntil = time.Time{}
	if o == Unknown && !p.info.Terminating {
		p.unsureUntil = r.now.Add(r.cfg.ExpectationsTimeout)
	}
	c.own().deletions.failed(r.now, r.cfg)
	r.refresh(c)
}
