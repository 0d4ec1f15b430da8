package matrix

import "time"

// changes tells whether the row does not know the information yet. An equal
// placement is replaced by the one that is there.
func (r *row) changes(info *DaemonSetInfo) bool {
	if info.Earlier.same(r.info.Earlier) {
		info.Earlier = r.info.Earlier
	}
	if info.Placement != nil && r.info.Placement != nil && info.Placement.key == r.info.Placement.key {
		info.Placement = r.info.Placement
	}
	return r.info != *info
}

func (r *row) update(info DaemonSetInfo) {
	old := r.info
	r.info, r.surge = info, allowsSurge(info.Strategy)
	replaced := info.Placement != old.Placement
	if replaced {
		for _, c := range r.cells {
			c.newest = r.eligible(c.column)
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
		if replaced || info.Earlier != old.Earlier {
			g.course.RulesChanged()
		}
		r.follow()
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
		r.rejudge(c)
	}
}

func (r *row) refreshAll() {
	for _, c := range r.cells {
		r.refresh(c)
	}
}

// judgeNodes judges every node anew.
func (r *row) judgeNodes() {
	for name, col := range r.columns {
		if e := r.eligible(col); r.cells[name] != nil || e == ShouldRun {
			r.judgeNode(name, col, e)
		}
	}
}

// judgeNode brings one cell in line with its node, which may be nil; e is what the rules
// of the newest revision say.
func (r *row) judgeNode(name string, col *column, e Eligibility) {
	c := r.cells[name]
	if c == nil {
		c = r.addCell(name)
	}
	c.column, c.newest = col, e
	r.refresh(c)
}

func (r *row) addCell(name string) *cell {
	c := &cell{row: r, node: name, tries: nothing}
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
		c.column = r.columns[c.node]
		c.newest = r.eligible(c.column)
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

// refresh judges a cell anew after anything about it changed, and the cells for
// which that means something by the rollout.
func (r *row) refresh(c *cell) {
	if r.rejudge(c); r.guide != nil {
		r.follow()
	}
}

func (r *row) rejudge(c *cell) {
	c.eligibility = r.eligibility(c)
	j := judge(c, r.now)
	if j.guided && c.column != nil {
		r.guide.course.SetDaemon(c.node, j.fact)
	}
	r.place(c, j.verdict)
	r.timers.Set(&c.timer, j.wake)
	if r.noteUnplaceable(c); *c.tries == *nothing {
		c.tries = nothing
	}
	if c.forgettable() {
		r.timers.Stop(&c.timer)
		delete(r.cells, c.node)
	}
}
