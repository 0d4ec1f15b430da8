package row

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// answered takes note of what became of an action.
func (r *Row) answered(e Answered) {
	switch a := e.Action.(type) {
	case *action.CreatePod:
		r.created(a, e)
	case *action.DeletePod:
		r.deleted(a, e.Outcome)
	case *action.PointPod:
		r.pointed(a.Node, a.PodUID, a.At, a.Revision, e.Answer)
	case *action.ResizePod:
		r.pointed(a.Node, a.PodUID, a.At, a.Revision, e.Answer)
	case *action.FetchImages:
		r.fetched(a, e.Outcome)
	case *action.UpdateStatus:
		r.statusWritten(a, e.Outcome)
	case *action.UpdateRollout:
		r.rolloutWritten(a, e.Outcome)
	}
}

func (r *Row) created(a *action.CreatePod, e Answered) {
	p := r.paceOf(a)
	p.end(r.now)
	c := r.cells[a.Node]
	if c != nil && c.creating.name == a.PodName && !c.creating.answered {
		r.settleCreation(c, a.Revision, e)
		r.refresh(c)
	}
	r.adjust(p, e.Outcome)
}

// adjust has a success raise the pace and a failure begin the slow start from the beginning, after a pause. Cells that
// keep failing are tried the less often the more there are: together they cost as much as one.
func (r *Row) adjust(p *pace, o action.Outcome) {
	switch o {
	case action.OK:
		p.window, p.until = min(p.window+1, r.cfg.BurstReplicas), time.Time{}
	case action.Failed, action.Unknown, action.Gone:
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
func (r *Row) settleCreation(c *cell, revision string, e Answered) {
	switch e.Outcome {
	case action.OK:
		c.answer()
		if e.Known || c.creating.left == e.Pod {
			c.creating = creation{}
			return
		}
		c.creating.answered, c.creating.uid, c.creating.until = true, e.Pod, r.now.Add(r.cfg.SeenTimeout)
		return
	case action.Unknown:
		if c.creating.seen {
			c.answer()
			break
		}
		c.unanswered, c.unansweredUntil = c.creating.name, r.now.Add(r.cfg.ExpectationsTimeout)
		c.setback.failed(r.now, r.cfg)
	case action.Failed, action.Gone:
		c.setback.failed(r.now, r.cfg)
		c.refused, c.ofWhich = e.Refused, revision
	case action.NameTaken:
		c.unanswered, c.unansweredUntil = "", time.Time{}
		c.taken++
		c.setback.failed(r.now, r.cfg)
	}
	c.creating = creation{}
}

// asked is the pod of which one of the deletions, or what counts as one, has been answered; nil if it is gone.
func (r *Row) asked(node string, uid types.UID) (c *cell, p *Pod) {
	r.deletes = max(0, r.deletes-1)
	c = r.cells[node]
	if c == nil {
		return nil, nil
	}
	return c, c.pod(uid)
}

// deletes: nothing hinders deletions in the cell any more.
func (c *cell) deletes() {
	if c.deletions != (setback{}) { // most cells share their tries, and write nothing
		c.deletions = setback{}
	}
}

// pointed: the pod was pointed at the content of the revision, or given its amounts, as was asked for then, or not.
func (r *Row) pointed(node string, uid types.UID, at time.Time, revision string, e action.Answer) {
	c, p := r.asked(node, uid)
	if p == nil || p.pointedUntil.IsZero() || !p.asked.Equal(at) {
		return
	}
	done := e.Outcome != action.Failed && e.Outcome != action.Unknown
	switch {
	case e.Outcome == action.Failed && p.info.Revision == revision: // nothing is left to wait for
		p.pointedUntil, p.unsureUntil = time.Time{}, time.Time{}
	case done:
		p.pointedUntil, p.unsureUntil = r.now.Add(r.cfg.SeenTimeout), time.Time{}
		c.deletes()
	case e.Refused != "":
		p.pointedUntil, p.unpointable = time.Time{}, revision
	default: // where it was done all the same, it is done once more
		p.pointedUntil = time.Time{}
		if e.Outcome == action.Unknown {
			p.unsureUntil = r.now.Add(r.cfg.ExpectationsTimeout)
		}
		c.own().deletions.failed(r.now, r.cfg)
	}
	r.refresh(c)
}

func (r *Row) fetched(a *action.FetchImages, o action.Outcome) {
	c, p := r.asked(a.Node, a.PodUID)
	switch {
	case p == nil || p.fetchUntil.IsZero():
		return
	case o == action.Failed || o == action.Unknown: // where it was done all the same, it is done once more
		p.fetchUntil = time.Time{}
		c.own().fetches.failed(r.now, r.cfg)
	default:
		p.fetchUntil = r.now.Add(r.cfg.SeenTimeout)
		c.own().fetches = setback{}
	}
	r.refresh(c)
}

func (r *Row) deleted(a *action.DeletePod, o action.Outcome) {
	c, p := r.asked(a.Node, a.PodUID)
	if p == nil {
		return
	}
	if o != action.Failed && o != action.Unknown {
		p.unsureUntil = time.Time{}
		c.deletes()
		return
	}
	p.doomedUntil = time.Time{}
	if o == action.Unknown && !p.info.Terminating {
		p.unsureUntil = r.now.Add(r.cfg.ExpectationsTimeout)
	}
	c.own().deletions.failed(r.now, r.cfg)
	r.refresh(c)
}
