package matrix

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
)

// daemon is what became of the DaemonSet on the node, for the row's course.
func (j *judgement) daemon() course.Daemon {
	c := j.cell
	if c.column == nil {
		return course.Daemon{}
	}
	later := func(at time.Time) bool {
		if !at.After(j.now) {
			return false
		}
		j.wakeAt(at)
		return true
	}
	d := course.Daemon{Refused: c.refused, Unsure: c.unanswered != ""}
	created, deleted := later(c.setback.until), later(c.deletions.until)
	d.Held = created || deleted
	newest, others := j.newest(&d)
	d.Restarts = int32(c.failures.count)
	if newest == nil {
		return c.without(d, others)
	}
	d.Two, d.Revision, d.Ending, d.Was = others > 0, newest.info.Revision, "", ""
	d.Made, d.Bound, d.Restarts = newest.info.Created, newest.info.BoundAt, d.Restarts+newest.info.Restarts
	d.Trouble, d.Certain, d.NoRoom = newest.info.Trouble, newest.info.Certain, newest.info.Unplaceable
	d.Before, d.Cause = newest.info.Before, course.Reason(newest.info.Cause)
	if j.isUp(newest) {
		d.Since = newest.since(j.spec.MinReadySeconds)
	}
	return d
}

// newest is the newest live pod, and how many others occupy the cell. What all pods
// together say is added.
func (j *judgement) newest(d *course.Daemon) (newest *trackedPod, others int) {
	for _, p := range j.cell.pods {
		if !p.live() || p.info.Phase != PodActive {
			d.Ending, d.Before = p.info.Revision, p.info.Before
		}
		d.Unsure = d.Unsure || !p.unsureUntil.IsZero()
		switch {
		case p.live() && p.info.Phase == PodActive:
			if newest != nil {
				others++
			}
			newest = p
			d.Available = d.Available || j.isUp(p)
		case p.live():
			d.Trouble = p.info.Trouble
		case p.mapped():
			others++
			if p.info.EndsBy.After(d.EndsBy) {
				d.EndsBy = p.info.EndsBy
			}
			if d.Was = ""; p.info.WasReady {
				d.Was = course.WasAvailable
			}
		}
	}
	return newest, others
}

// without adds why the node has no pod that stays.
func (c *cell) without(d course.Daemon, leaving int) course.Daemon {
	d.Ended = len(c.pods) > 0
	if leaving > 0 && d.Trouble == "" {
		d.Trouble = "its old pod has not ended yet"
	}
	return d
}

// waitsForNode tells whether nothing but the node's silence keeps the DaemonSet away by rules that let a pod stay: it has
// one there, and the node is marked as not ready or unreachable. Such a node is still one of the fleet, and out of order.
func (c *cell) waitsForNode(p *Placement) bool {
	if c == nil || len(c.pods) == 0 {
		return false
	}
	for i := range c.column.info.Taints {
		t := &c.column.info.Taints[i]
		marked := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		if !marked && t.Effect == corev1.TaintEffectNoSchedule && !p.tolerates(t) {
			return false
		}
	}
	return true
}

// since is from when on the pod is available, which it is.
func (p *trackedPod) since(minReadySeconds int32) time.Time {
	at := p.readyFrom
	if at.IsZero() {
		at = p.info.Created
	}
	return at.Add(time.Duration(minReadySeconds) * time.Second)
}
