package matrix

import (
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/deadline"
)

// trackedPod is a pod the matrix knows.
type trackedPod struct {
	info PodInfo
	cell *cell // nil while it has no node or no row
	// doomedUntil is set from the moment its deletion leaves Ready; until then
	// the pod counts as terminating whatever its last event said.
	doomedUntil time.Time
	// unsureUntil is set while a deletion got no answer: it may be done. The pod
	// counts as live, so that it is deleted again, and as not up.
	unsureUntil time.Time
	// readyFrom is when it became ready, but not after we first saw it, and not before
	// it was made: the node's clock may be ahead of ours, or behind.
	readyFrom time.Time
}

// update takes a new state of the pod in.
func (p *trackedPod) update(info PodInfo, now time.Time) {
	if !p.info.Ready || p.info.ReadySince != info.ReadySince {
		p.readyFrom = info.ReadySince
		if !p.readyFrom.IsZero() && p.readyFrom.Before(info.Created) {
			p.readyFrom = info.Created
		}
		if p.readyFrom.After(now) {
			p.readyFrom = now
		}
	}
	if p.info.UID == info.UID {
		info.Before = p.info.Before // it was written when the pod was made, and not since
	}
	p.info = info
	if info.Terminating {
		p.doomedUntil, p.unsureUntil = time.Time{}, time.Time{}
	}
}

// availableAt returns from when on the pod counts as available; false if it is
// not on its way there.
func (p *trackedPod) availableAt(minReadySeconds int32) (time.Time, bool) {
	switch {
	case !p.info.Ready:
		return time.Time{}, false
	case minReadySeconds <= 0:
		return time.Time{}, true
	case p.readyFrom.IsZero():
		return time.Time{}, false
	}
	return p.readyFrom.Add(time.Duration(minReadySeconds) * time.Second), true
}

// live reports whether the pod is not on its way out.
func (p *trackedPod) live() bool { return !p.info.Terminating && p.doomedUntil.IsZero() }

// mapped reports whether the pod occupies its cell: a finished pod whose deletion
// hangs on a finalizer does not.
func (p *trackedPod) mapped() bool { return p.info.Phase == PodActive || !p.info.Terminating }

// census sorts the pods of a cell.
type census struct {
	mapped, live, finished            int
	oldLive, newLive                  int
	first                             *trackedPod // of the mapped
	oldestOld, oldestNew              *trackedPod // of the live
	activeFirst, activeOld, activeNew *trackedPod // of the active
	adopting                          bool
	// leaving are pods whose deletion is in flight: for all we know they run.
	leaving int
}

func takeCensus(pods []*trackedPod, revision string) census {
	var c census
	for _, p := range pods {
		if p.mapped() {
			c.mapped++
			c.first = firstOf(c.first, p)
		}
		if !p.live() {
			if !p.info.Terminating {
				c.leaving++
			}
			continue
		}
		c.live++
		c.adopting = c.adopting || p.info.Adopting
		updated, active := p.info.Revision == revision, p.info.Phase == PodActive
		if updated {
			c.newLive++
			c.oldestNew = firstOf(c.oldestNew, p)
		} else {
			c.oldLive++
			c.oldestOld = firstOf(c.oldestOld, p)
		}
		switch {
		case !active:
			c.finished++
			continue
		case updated:
			c.activeNew = firstOf(c.activeNew, p)
		default:
			c.activeOld = firstOf(c.activeOld, p)
		}
		c.activeFirst = firstOf(c.activeFirst, p)
	}
	return c
}

func firstOf(have, p *trackedPod) *trackedPod {
	if have != nil {
		return have
	}
	return p
}

// facts is what became of the DaemonSet on the cell's node, for the row's course, and until when
// that holds.
func (c *cell) facts(now time.Time) (d course.Daemon, until time.Time) {
	if c.column == nil {
		return course.Daemon{}, time.Time{}
	}
	d = course.Daemon{Refused: c.refused, Unsure: c.mayBeMade()}
	for _, at := range []time.Time{c.setback.until, c.deletions.until} {
		if at.After(now) {
			d.Held, until = true, deadline.Sooner(until, at)
		}
	}
	spec := &c.row.info
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
		up, at := p.up(spec.MinReadySeconds, now)
		newest, newestUp, d.Available, until = p, up, d.Available || up, deadline.Sooner(until, at)
	}
	d.Restarts = int32(c.failures.count)
	if newest == nil {
		d.Ended = len(c.pods) > 0
		if others > 0 && d.Trouble == "" {
			d.Trouble = "its old pod has not ended yet"
		}
		return d, until
	}
	is := &newest.info
	d.Two, d.Revision, d.Ending, d.Was = others > 0, is.Revision, "", ""
	d.Made, d.Bound, d.Restarts = is.Created, is.BoundAt, d.Restarts+is.Restarts
	d.Trouble, d.Certain, d.NoRoom = is.Trouble, is.Certain, is.Unplaceable
	d.Before, d.Cause = is.Before, course.Reason(is.Cause)
	if newestUp {
		d.Since = newest.since(spec.MinReadySeconds)
	}
	return d, until
}

// mayBeMade reports whether a pod may be there that nobody has seen, and whose old one does not show it.
func (c *cell) mayBeMade() bool { return c.unanswered != "" || c.row.surge && c.creating.name != "" }

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

// since is from when on the pod is available, which it is.
func (p *trackedPod) since(minReadySeconds int32) time.Time {
	at := p.readyFrom
	if at.IsZero() {
		at = p.info.Created
	}
	return at.Add(time.Duration(minReadySeconds) * time.Second)
}
