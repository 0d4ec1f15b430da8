package row

import (
	"cmp"
	"time"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// act returns what is to be done, with so many changes as may begin at the policy's pace.
func (r *Row) act(allowed int) (out Result) {
	r.due = time.Time{}
	if r.info.Deleting || r.cfg.Guest && r.guide == nil {
		return out
	}
	if !r.info.Held {
		if r.guide != nil {
			out.Begun = r.takeTurns(allowed)
		}
		out.Actions = r.changePods(nil)
	}
	if !r.cfg.Guest {
		out.Actions = r.readyStatus(r.placements(out.Actions))
	}
	out.Actions = r.readyRollout(out.Actions)
	r.due = r.later()
	return out
}

func (r *Row) changePods(out []action.Action) []action.Action {
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
	out = r.deletions(out, workResize, func() bool { return at(surging) < maxSurge })
	out = r.creations(out, workSurge, func() bool { return at(surging) < maxSurge })
	return r.deletions(out, workFetch, func() bool { return true })
}

// deletions deletes what is to go, as long as it may.
func (r *Row) deletions(out []action.Action, w work, may func() bool) []action.Action {
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
func (r *Row) creations(out []action.Action, w work, may func() bool) []action.Action {
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

// nextCreation returns the cell that may create next: those that did not fail first, the others beside them.
func (r *Row) nextCreation(w work) (next *cell) {
	if r.fresh.inFlight+r.again.inFlight >= r.cfg.BurstReplicas {
		return nil
	}
	if r.info.First != (fact.Firsts{}) {
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

// nextBesideFirst is nextCreation while pods of some templates wait for the first one: those of others do not.
func (r *Row) nextBesideFirst(w work) (next *cell) {
	r.work[w].Ascend(func(c *cell) bool {
		p := &r.fresh
		if c.verdict.rank != 0 {
			p = &r.again
		}
		if p.open(r.now) && r.info.First.Of(r.templateFor(c)) != fact.FirstPulls {
			next = c
		}
		return next == nil
	})
	return next
}

// templateFor is the hash of the template that the cell's next pod has.
func (r *Row) templateFor(c *cell) string { return content.TemplateOf(r.order(c.node).Target) }

// paceOf returns the pace that a creation goes by.
func (r *Row) paceOf(a *action.CreatePod) *pace {
	if a.Again {
		return &r.again
	}
	return &r.fresh
}

func (r *Row) doom(c *cell, rm removal) action.Action {
	a := &action.DeletePod{Target: r.target(), Node: c.node, PodName: rm.pod.info.Name, PodUID: rm.pod.info.UID,
		Reason: rm.reason}
	switch rm.reason {
	case action.ReasonLive:
		return r.point(c, rm.pod)
	case action.ReasonResize:
		return r.resize(c, rm.pod)
	case action.ReasonFetch:
		return r.fetch(c, rm.pod)
	case action.ReasonFailed:
		c.own().failures.Next(r.info.Generation, rm.pod.info.Revision, r.now,
			r.cfg.FailedPodBackoff, r.cfg.MaxFailedPodBackoff)
	case action.ReasonNodeUnfit:
		a.Detail = r.LeftOut(c.node)
	case action.ReasonTurn, action.ReasonOutdated, action.ReasonOutdatedUnavailable:
		a.Detail = r.LeftOut(c.node)
		if a.Detail == "" {
			a.Next = r.wanted(c.node)
		}
	}
	rm.pod.doomedUntil = r.now.Add(r.cfg.ExpectationsTimeout)
	r.deletes++
	return a
}

// point has the pod's volumes show the content of the revision that the cell is to have.
func (r *Row) point(c *cell, p *Pod) action.Action {
	at := r.asks(p)
	return &action.PointPod{Target: r.target(), Node: c.node, PodName: p.info.Name, PodUID: p.info.UID, At: at,
		Revision: r.order(c.node).Target, Before: r.guide.course.Before(c.node), Settle: r.info.Live.Settle}
}

// resize has the pod be given the amounts of the revision that the cell is to have.
func (r *Row) resize(c *cell, p *Pod) action.Action {
	at := r.asks(p)
	a := &action.ResizePod{Target: r.target(), Node: c.node, PodName: p.info.Name, PodUID: p.info.UID, At: at,
		Revision: r.order(c.node).Target, Gapless: r.surge}
	if r.guide != nil {
		a.Before = r.guide.course.Before(c.node)
	}
	return a
}

// asks has the pod be waited for until it says that this was asked of it, now. It counts as a deletion.
func (r *Row) asks(p *Pod) time.Time {
	p.asked, p.pointedUntil = r.now, r.now.Add(r.cfg.ExpectationsTimeout)
	if p.asked.Equal(p.info.Pointed) { // which it says already
		p.asked = p.asked.Add(1)
	}
	r.deletes++
	return p.asked
}

// fetches has the node be asked for the images that it is to have before its turn, or no longer.
func (j *judgement) fetches() {
	if !j.row.cfg.Fetches || j.verdict.work != workNone || j.live != 1 {
		return
	}
	p, wish := firstOf(j.oldestOld, j.oldestNew), j.order.Fetch
	switch {
	case !p.info.Bound || !p.fetchUntil.IsZero():
	case wish == standing.Ask && j.cell.column != nil && (j.row.cfg.FetchPods || fetch.Can(j.cell.column.Node.Labels)),
		wish == standing.NoWish && p.info.Fetch.Revision != "":
		j.verdict.work, j.removals = workFetch, []removal{{p, action.ReasonFetch}}
	}
}

// fetch asks the cell's node for images, or takes that back. It counts as a deletion.
func (r *Row) fetch(c *cell, p *Pod) action.Action {
	p.fetchUntil = r.now.Add(r.cfg.ExpectationsTimeout)
	r.deletes++
	a := &action.FetchImages{Target: r.target(), Node: c.node, PodName: p.info.Name, PodUID: p.info.UID}
	if r.order(c.node).Fetch == standing.Ask {
		a.Revision = r.info.Revision
	}
	return a
}

func (r *Row) create(c *cell, why action.Reason) action.Action {
	a := &action.CreatePod{Target: r.target(), Node: c.node, Revision: r.order(c.node).Target, Reason: why,
		Again: c.setback.failures > 0, PodName: cmp.Or(c.unanswered, r.freeName(c))}
	if r.guide != nil {
		a.Before = r.guide.course.Before(c.node)
	}
	c.own().creating = creation{name: a.PodName, until: r.now.Add(r.cfg.ExpectationsTimeout)}
	r.paceOf(a).begin(r.now)
	if of := r.templateFor(c); r.info.First.Of(of) == fact.FirstIsWanted {
		r.info.First.Set(of, fact.FirstPulls)
	}
	r.refresh(c)
	return a
}

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

// resize gives the old pod other amounts, within the limit that replacing it would have.
func (j *judgement) resize() {
	switch {
	case j.guided, !j.isUp(j.oldestOld):
		j.remove(j.oldestOld, action.ReasonResize)
	case j.surge:
		j.replace(workResize, action.ReasonResize)
	default:
		j.replace(workReplace, action.ReasonResize)
	}
}

// beingResized reports whether the only live pod of the cell is on its way to other amounts.
func (j *judgement) beingResized() bool {
	p := firstOf(j.oldestOld, j.oldestNew)
	return j.live == 1 && (!p.pointedUntil.IsZero() || p.info.Between || p.info.Resized && p.info.Mounted.IsZero())
}

// recovers reports whether the pod is not to give way though it is not ready: under a policy, what its probe asks may
// be back in a moment. It gives way to nothing that has failed; what has goes at once on the way back.
func (j *judgement) recovers(p *Pod) bool {
	until := p.fellFrom.Add(course.Lasting)
	switch {
	case !j.guided || j.row.guide.course.Returns():
		return false
	case j.order.Halted:
		return true
	case p.info.Trouble != "" || !until.After(j.now):
		return false
	}
	j.wakeAt(until)
	return true
}
