package matrix

import (
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/deadline"
)

// changes reports whether the row does not know the information yet. An equal
// placement is replaced by the one that is there.
func (r *row) changes(info *DaemonSetInfo) bool {
	if info.Earlier.Same(r.info.Earlier) {
		info.Earlier = r.info.Earlier
	}
	if info.Placement.Same(r.info.Placement) {
		info.Placement = r.info.Placement
	}
	return r.info != *info
}

func (r *row) update(info DaemonSetInfo) {
	old := r.info
	r.info, r.surge, r.rules = info, allowsSurge(info.Strategy), info.rules()
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
	if g := r.guide; g != nil {
		g.course.SetSpec(named(g.info.Spec, info.Digest))
		g.course.SetDaemonSet(r.forCourse())
		r.follow(nil)
	}
	switch {
	case replaced, info.Earlier != old.Earlier && r.guide != nil:
		r.judgeNodes()
	case info.Revision != old.Revision || info.Generation != old.Generation ||
		info.Strategy != old.Strategy || info.MinReadySeconds != old.MinReadySeconds:
		r.refreshAll()
	}
}

// tryAnew has nothing wait that failed, and forgets what the API refused: it was about
// something else. A rollout must not count that against what is to come.
func (r *row) tryAnew() {
	for _, c := range r.cells {
		if c.tries == nothing {
			continue
		}
		c.setback, c.refused, c.failures = setback{}, "", failureBackoff{}
		r.refresh(c)
	}
}

func (r *row) refreshAll() {
	for _, c := range r.cells {
		r.refresh(c)
	}
}

// judgeNodes judges every node again.
func (r *row) judgeNodes() {
	for name, col := range r.columns {
		r.judgeNode(name, col)
	}
}

// changeNode has the row's course and its cell know of a node, where it matters.
func (r *row) changeNode(e nodeChanged) {
	if r.guide != nil {
		r.sawNode(e.name, e.is)
		r.follow(nil)
	}
	same := e.was != nil && e.is != nil && e.was.node == e.is.node
	switch c := r.cells[e.name]; {
	case !same:
		r.judgeNode(e.name, e.is)
	case c != nil:
		c.column = e.is
	}
}

// judgeNode brings what the row has of a node in line with it; col is nil for one that is gone.
func (r *row) judgeNode(name string, col *column) {
	e, c := r.newest(col), r.cells[name]
	if c == nil && e == placement.ShouldRun {
		c = r.addCell(name)
	}
	if c != nil {
		c.column, c.newest = col, e
		r.refresh(c)
	}
}

func (r *row) addCell(name string) *cell {
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
func (r *row) attach(p *trackedPod) {
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
func (r *row) change(p *trackedPod, info PodInfo) {
	r.countRevision(p.info.Revision, -1)
	r.countRevision(info.Revision, 1)
	c := p.cell
	c.remove(p)
	p.update(info, r.now)
	c.insert(p)
	r.refresh(c)
}

// detach gives a pod away.
func (r *row) detach(p *trackedPod) {
	r.countRevision(p.info.Revision, -1)
	delete(r.unplaced, p.info.UID)
	if c := p.cell; c != nil {
		if c.remove(p); c.creating.name != "" {
			c.creating.left = p.info.UID
		}
		r.refresh(c)
	}
}

func (r *row) countRevision(revision string, by int) {
	if r.revisions[revision] += by; r.revisions[revision] == 0 {
		delete(r.revisions, revision)
	}
}

// tick does what was due in the row's cells.
func (r *row) tick() {
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
func (r *row) refresh(c *cell) {
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
func (r *row) follow(judged *cell) {
	for _, node := range r.guide.course.Moved() {
		if c := r.cellOf(node); c != nil && c != judged {
			_, until := r.facts(c)
			r.settle(c, until)
		}
	}
}

// settle judges one cell. What is known of it holds until then.
func (r *row) settle(c *cell, until time.Time) {
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

// facts is what became of the DaemonSet on the cell's node, for the row's course, and until when
// that holds.
func (r *row) facts(c *cell) (d course.Daemon, until time.Time) {
	if c.column == nil {
		return course.Daemon{}, time.Time{}
	}
	d = course.Daemon{Refused: c.refused, Unsure: r.mayBeMade(c)}
	for _, at := range []time.Time{c.setback.until, c.deletions.until} {
		if at.After(r.now) {
			d.Held, until = true, deadline.Sooner(until, at)
		}
	}
	var newest *trackedPod
	others, newestUp := 0, false
	for _, p := range c.pods {
		d.Unsure = d.Unsure || !p.unsureUntil.IsZero()
		if !p.live() || p.info.Phase != PodActive {
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
		d.Restarts = c.failures.of(r.info.Revision) // the course takes it as evidence against that one
		d.Ended = len(c.pods) > 0
		if others > 0 && d.Trouble == "" {
			d.Trouble = "its old pod has not ended yet"
		}
		return d, until
	}
	is := &newest.info
	d.Two, d.Revision, d.Ending, d.Was = others > 0, is.Revision, "", ""
	d.Made, d.Bound, d.Restarts = is.Created, is.BoundAt, c.failures.of(is.Revision)+is.Restarts
	d.Trouble, d.Certain, d.NoRoom = is.Trouble, is.Certain, is.Unplaceable
	d.Before, d.Cause = is.Before, course.Reason(is.Cause)
	if newestUp {
		d.Since = newest.since(r.info.MinReadySeconds)
	}
	d.Comes = newest.comes(r.info.MinReadySeconds, r.now)
	return d, until
}

// mayBeMade reports whether a pod may be there that nobody has seen, and whose old one does not show it.
func (r *row) mayBeMade(c *cell) bool { return c.unanswered != "" || r.surge && c.creating.name != "" }

// leaves adds what a pod says that does not stay, and returns 1 if it still occupies its cell beside
// another.
func (p *trackedPod) leaves(d *course.Daemon) int {
	d.Ending, d.Before = p.info.Revision, p.info.Before
	switch {
	case p.live():
		d.Trouble = p.info.Trouble
	case p.mapped():
		if p.info.EndsBy.After(d.EndsBy) {
			d.EndsBy = p.info.EndsBy
		}
		d.Was = ""
		if p.info.WasReady {
			d.Was = course.WasAvailable
		}
		return 1
	}
	return 0
}

// up reports whether the rollout may rely on the pod, and from when on by time alone if it may not yet.
func (p *trackedPod) up(minReadySeconds int32, now time.Time) (up bool, from time.Time) {
	at, ok := p.availableAt(minReadySeconds)
	if ok && at.After(now) {
		return false, at
	}
	return ok && p.unsureUntil.IsZero(), time.Time{}
}

// comes is when the pod, which is ready, is to be available; zero if it is not ready, or is already.
func (p *trackedPod) comes(minReadySeconds int32, now time.Time) time.Time {
	at, ok := p.availableAt(minReadySeconds)
	if !ok || !at.After(now) {
		return time.Time{}
	}
	return at
}

// since is from when on the pod is available, which it is.
func (p *trackedPod) since(minReadySeconds int32) time.Time {
	at := p.readyFrom
	if at.IsZero() {
		at = p.info.Created
	}
	return at.Add(time.Duration(minReadySeconds) * time.Second)
}
