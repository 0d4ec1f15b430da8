package row

import (
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/failing"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Changes reports whether the row does not know the information yet. An equal
// placement is replaced by the one that is there.
func (r *Row) Changes(info *fact.DaemonSet) bool {
	if info.Earlier.Same(r.info.Earlier) {
		info.Earlier = r.info.Earlier
	}
	if info.Placement.Same(r.info.Placement) {
		info.Placement = r.info.Placement
	}
	return r.info != *info
}

func (r *Row) update(info fact.DaemonSet) {
	old := r.info
	r.info, r.surge, r.rules = info, info.Strategy.Surges(), info.AllRules()
	replaced := info.Placement != old.Placement
	if replaced {
		for _, c := range r.cells {
			c.newest = r.newest(c.column)
		}
	}
	if info.Generation != old.Generation {
		r.fresh.until, r.again.until = time.Time{}, time.Time{}
		r.tryAnew()
		r.statusSetback = setback{}
	}
	if r.guide != nil {
		r.tellCourse()
		r.follow(nil)
	}
	switch {
	case replaced, info.Earlier != old.Earlier && r.guide != nil:
		r.judgeNodes()
	case info.Revision != old.Revision || info.Generation != old.Generation ||
		info.Strategy != old.Strategy || info.MinReadySeconds != old.MinReadySeconds || info.Live != old.Live:
		r.refreshAll()
	}
}

// tryAnew has nothing wait that failed, and forgets what the API refused: it was about
// something else. A rollout must not count that against what is to come.
func (r *Row) tryAnew() {
	for _, c := range r.cells {
		if c.tries == nothing {
			continue
		}
		c.setback, c.refused, c.failures = setback{}, "", failing.Backoff{}
		r.refresh(c)
	}
}

func (r *Row) refreshAll() {
	for _, c := range r.cells {
		r.refresh(c)
	}
}

// judgeNodes judges every node again.
func (r *Row) judgeNodes() {
	for name, col := range r.columns {
		r.judgeNode(name, col)
	}
}

// changeNode has the row's course and its cell know of a node, where it matters.
func (r *Row) changeNode(e NodeChanged) {
	if c := r.cells[e.Name]; c != nil {
		c.column = e.Is // before other cells move: this one may be judged with them
	}
	if r.guide != nil {
		r.sawNode(e.Name, e.Is)
		r.follow(nil)
	}
	switch c := r.cells[e.Name]; {
	case !e.same():
		r.judgeNode(e.Name, e.Is)
	case c != nil && r.info.Live != nil: // a node that is out of order is not expected to say anything
		r.refresh(c)
	}
}

// judgeNode brings what the row has of a node in line with it; col is nil for one that is gone.
func (r *Row) judgeNode(name string, col *Column) {
	e, c := r.newest(col), r.cells[name]
	if c == nil && e == placement.ShouldRun {
		c = r.addCell(name)
	}
	if c != nil {
		c.column, c.newest = col, e
		r.refresh(c)
	}
}

func (r *Row) addCell(name string) *cell {
	c := &cell{node: name, tries: nothing, column: r.columns[name]}
	c.newest = r.newest(c.column)
	c.timer.Owner = c
	if r.sums != nil {
		c.audited = r.sums.run
	}
	r.cells[name] = c
	return c
}

// attach takes a pod in.
func (r *Row) attach(p *Pod) {
	r.countRevision(p.info.Revision, 1)
	if p.info.Node == "" {
		r.unplaced[p.info.UID] = p
		return
	}
	c := r.cells[p.info.Node]
	if c == nil {
		c = r.addCell(p.info.Node)
	}
	c.insert(p)
	r.refresh(c)
}

// change takes the new state of a pod in that stays in its cell.
func (r *Row) change(p *Pod, info fact.Pod) {
	r.countRevision(p.info.Revision, -1)
	r.countRevision(info.Revision, 1)
	c := p.cell
	c.remove(p)
	p.Update(info, r.now)
	c.insert(p)
	r.refresh(c)
}

// detach gives a pod away.
func (r *Row) detach(p *Pod) {
	r.countRevision(p.info.Revision, -1)
	delete(r.unplaced, p.info.UID)
	if c := p.cell; c != nil {
		c.remove(p)
		if c.creating.name != "" {
			c.creating.left = p.info.UID
		}
		r.refresh(c)
	}
}

func (r *Row) countRevision(revision string, by int) {
	r.revisions[revision] += by
	if r.revisions[revision] == 0 {
		delete(r.revisions, revision)
	}
}

// tick does what was due in the row's cells.
func (r *Row) tick() {
	if !r.due.After(r.now) {
		r.due = time.Time{}
	}
	for t := r.timers.Pop(r.now); t != nil; t = r.timers.Pop(r.now) {
		t.Owner.expire(r.now, r.cfg.ExpectationsTimeout)
		r.refresh(t.Owner)
	}
}

// refresh judges a cell after anything about it changed: its row's course hears of it first, then it is
// judged, and so are the cells for which it means something by the rollout.
func (r *Row) refresh(c *cell) {
	if r.guide == nil {
		r.settle(c, time.Time{})
		return
	}
	daemon, until := r.facts(c)
	if c.column != nil {
		r.guide.course.SetDaemon(c.node, daemon)
	}
	r.settle(c, until)
	r.follow(c)
}

// follow judges the cells whose order has changed, but for one that was judged since.
func (r *Row) follow(judged *cell) {
	for _, node := range r.guide.course.Moved() {
		switch c := r.cellOf(node); {
		case c != nil && c.refused != "" && c.ofWhich != r.order(node).Target:
			c.setback, c.refused = setback{}, "" // it is about what the node is not to have any more
			r.refresh(c)
		case c != nil && c != judged:
			r.refresh(c) // what time alone has changed is told with it
		}
	}
}

// settle judges one cell. What is known of it holds until then.
func (r *Row) settle(c *cell, until time.Time) {
	order := r.order(c.node)
	c.eligibility = r.eligibility(c, order)
	j := r.judge(c, order)
	r.place(c, j.verdict)
	c.todo = nil
	if j.verdict.work != workNone {
		c.todo = &j.todo
	}
	r.timers.Set(&c.timer, deadline.Sooner(j.wake, until))
	r.noteUnplaceable(c)
	if *c.tries == *nothing {
		c.tries = nothing
	}
	if c.forgettable() {
		r.timers.Stop(&c.timer)
		delete(r.cells, c.node)
	}
}

// facts is what became of the DaemonSet on the cell's node, for the row's course, and until when that holds.
func (r *Row) facts(c *cell) (d standing.Daemon, until time.Time) {
	if c.column == nil {
		return standing.Daemon{}, time.Time{}
	}
	d = standing.Daemon{Refused: c.refused, RefusedOf: c.ofWhich, Unsure: r.mayBeMade(c)}
	for _, at := range []time.Time{c.setback.until, c.deletions.until} {
		if at.After(r.now) {
			d.Held, until = true, deadline.Sooner(until, at)
		}
	}
	var newest *Pod
	others, newestUp := 0, false
	for _, p := range c.pods {
		d.Unsure = d.Unsure || !p.unsureUntil.IsZero() || !p.pointedUntil.IsZero()
		if !p.live() || p.info.Phase != fact.PodActive {
			others += p.leaves(&d)
			continue
		}
		if newest != nil {
			others++
		}
		up, at := p.up(r.info.MinReadySeconds, r.now)
		newest, newestUp, d.Available, until = p, up, d.Available || up, deadline.Sooner(until, at)
	}
	if newest == nil {
		d.Restarts = c.failures.Of(r.info.Revision) // the course takes it as evidence against that one
		d.Ended = len(c.pods) > 0
		if others > 0 && d.Trouble == "" {
			d.Trouble = "its old pod has not ended yet"
		}
		return d, until
	}
	d.Two, d.Restarts = others > 0, c.failures.Of(newest.info.Revision)+newest.info.Restarts
	newest.stays(&d)
	if newestUp {
		d.Since = newest.since(r.info.MinReadySeconds)
	}
	d.Comes = newest.comes(r.info.MinReadySeconds, r.now)
	return d, until
}

// stays adds what the newest pod says, which stays.
func (p *Pod) stays(d *standing.Daemon) {
	is := &p.info
	d.Revision, d.Ending, d.Was = is.Revision, "", ""
	d.Made, d.Bound = is.Created, is.BoundAt
	if !is.Pointed.IsZero() { // to its revision it is another pod
		d.Made, d.Bound, d.Given = is.Pointed, is.Pointed, true
	}
	d.Trouble, d.Certain, d.NoRoom = is.Trouble, is.Certain, is.Unplaceable
	if d.Trouble == "" && !p.unsureUntil.IsZero() {
		d.Trouble = "the API gave no answer about its pod, which may be gone or changed"
	}
	d.Before, d.Cause, d.Fetch, d.Gates = is.Before, standing.Reason(is.Cause), is.Fetch, is.Gates
}

// mayBeMade reports whether a pod may be there that nobody has seen, and whose old one does not show it.
func (r *Row) mayBeMade(c *cell) bool { return c.unanswered != "" || r.surge && c.creating.name != "" }

// leaves adds what a pod says that does not stay, and returns 1 if it still occupies its cell beside another.
func (p *Pod) leaves(d *standing.Daemon) int {
	d.Ending, d.Before = p.info.Revision, p.info.Before
	switch {
	case p.live():
		d.Trouble = p.info.Trouble
	case p.mapped():
		if p.info.EndsBy.After(d.EndsBy) {
			d.EndsBy, d.Grace = p.info.EndsBy, p.info.Grace
		}
		d.Was = ""
		if p.info.WasReady {
			d.Was = standing.WasAvailable
		}
		return 1
	}
	return 0
}

// up reports whether the rollout may rely on the pod, and from when on by time alone if it may not yet.
func (p *Pod) up(minReadySeconds int32, now time.Time) (up bool, from time.Time) {
	at, ok := p.availableAt(minReadySeconds)
	if ok && at.After(now) {
		return false, at
	}
	return ok && p.unsureUntil.IsZero() && p.pointedUntil.IsZero(), time.Time{}
}

// comes is when the pod, which is ready, is to be available; zero if it is not ready, or is already.
func (p *Pod) comes(minReadySeconds int32, now time.Time) time.Time {
	at, ok := p.availableAt(minReadySeconds)
	if !ok || !at.After(now) {
		return time.Time{}
	}
	return at
}

// since is from when on the pod is available, which it is.
func (p *Pod) since(minReadySeconds int32) time.Time {
	at := p.readyFrom
	if at.IsZero() {
		at = p.info.Created
	}
	at = at.Add(time.Duration(minReadySeconds) * time.Second)
	if !p.info.Pointed.IsZero() {
		at = deadline.Later(at, p.mountedFrom.Add(p.info.Settle))
	}
	return at
}
