package matrix

import (
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/deadline"
)

// tally is what a cell adds to its row's totals. The first seven fields are the
// status, which goes by the oldest pod of a desired cell; the last three serve
// the rollout, which looks at all live pods.
type tally struct {
	desired, current, misscheduled, ready, updated, available int32
	// outdated are desired cells whose pod is available and not updated.
	outdated int32

	rolloutUnavailable, rolloutSurging, rolloutAvailable int32
	// troubled are wanted cells whose last creation failed.
	troubled int32
}

func (t *tally) add(o *tally, sign int32) {
	t.desired += sign * o.desired
	t.current += sign * o.current
	t.misscheduled += sign * o.misscheduled
	t.ready += sign * o.ready
	t.updated += sign * o.updated
	t.available += sign * o.available
	t.outdated += sign * o.outdated
	t.rolloutUnavailable += sign * o.rolloutUnavailable
	t.rolloutSurging += sign * o.rolloutSurging
	t.rolloutAvailable += sign * o.rolloutAvailable
	t.troubled += sign * o.troubled
}

// verdict is all that follows from the present facts of one cell.
type verdict struct {
	phase Phase
	work  work
	// rank orders the cells that want the same work: how often it failed.
	rank  int
	tally tally
	// wake is when the verdict may change by time alone; zero means never.
	wake time.Time
}

// removal is one pod to delete now.
type removal struct {
	pod    *trackedPod
	reason Reason
}

// judgement computes the verdict of one cell. It changes nothing.
type judgement struct {
	cell  *cell
	spec  *DaemonSetInfo
	surge bool
	now   time.Time
	// guided tells that the row follows a policy; order is what it says of the cell,
	// fact what it is told of it.
	guided bool
	order  course.Order
	fact   course.Daemon
	census

	verdict  verdict
	removals []removal
	surplus  bool
	// postponed is work that failed and waits for its next try.
	postponed work
}

// census sorts the pods of a cell.
type census struct {
	mapped, live, active, finished    int
	oldLive, newLive                  int
	first                             *trackedPod // of the mapped
	oldestOld, oldestNew              *trackedPod // of the live
	activeFirst, activeOld, activeNew *trackedPod // of the active
	activeOldCount, activeNewCount    int
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
			c.activeNewCount++
			c.activeNew = firstOf(c.activeNew, p)
		default:
			c.activeOldCount++
			c.activeOld = firstOf(c.activeOld, p)
		}
		c.active++
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

// judge computes the verdict and the pods to delete now.
func judge(c *cell, now time.Time) (verdict, []removal) {
	j := judgeCell(c, now)
	return j.verdict, j.removals
}

func judgeCell(c *cell, now time.Time) *judgement {
	order := c.order()
	j := &judgement{cell: c, spec: &c.row.info, surge: c.row.surge, now: now,
		guided: c.row.guide != nil, order: order, census: takeCensus(c.pods, order.Target)}
	if j.guided {
		j.fact = j.daemon()
	}
	j.countStatus()
	j.wakeAt(c.expectation())
	switch {
	case c.column == nil:
		j.stranded()
	case c.eligibility == ShouldNotRun:
		j.countRollout()
		j.unfit()
	case j.live == 0:
		j.countRollout()
		j.empty()
	default:
		j.countRollout()
		j.housekeeping()
		j.rollout()
		j.verdict.phase = j.occupiedPhase()
	}
	j.settleWork()
	return j
}

func (j *judgement) wakeAt(t time.Time) { j.verdict.wake = deadline.Sooner(j.verdict.wake, t) }

// isAvailable also arms the timer for the moment when the answer turns.
func (j *judgement) isAvailable(p *trackedPod) bool {
	at, ok := p.availableAt(j.spec.MinReadySeconds)
	if ok && at.After(j.now) {
		j.wakeAt(at)
		return false
	}
	return ok
}

// isUp tells whether the rollout may rely on the pod.
func (j *judgement) isUp(p *trackedPod) bool { return p.unsureUntil.IsZero() && j.isAvailable(p) }

func (j *judgement) countStatus() {
	t := &j.verdict.tally
	if j.cell.column == nil {
		return
	}
	if j.cell.eligibility != ShouldRun {
		if j.mapped > 0 {
			t.misscheduled = 1
		}
		return
	}
	t.desired = 1
	if j.cell.setback.failures > 0 {
		t.troubled = 1
	}
	if j.mapped == 0 {
		return
	}
	t.current = 1
	if j.first.info.Ready {
		t.ready = 1
	}
	if j.isAvailable(j.first) {
		t.available = 1
	}
	if j.first.info.Revision == j.spec.Revision {
		t.updated = 1
	}
	t.outdated = t.available &^ t.updated
}

// countRollout counts the cell for the budget. A cell with a pod too many or
// with none counts as unavailable; while surging it counts as surging.
func (j *judgement) countRollout() {
	if j.cell.eligibility != ShouldRun && (j.mapped == 0 || j.mapped == 1 && j.lost()) {
		return
	}
	t := &j.verdict.tally
	muddled := j.oldLive > 1 || j.newLive > 1
	if oldest := firstOf(j.oldestOld, j.oldestNew); !muddled && oldest != nil && j.isUp(oldest) {
		t.rolloutAvailable = 1
	}
	if muddled || j.oldLive == j.newLive || t.rolloutAvailable == 0 {
		t.rolloutUnavailable = 1
	}
	if muddled || j.surging() {
		t.rolloutSurging = 1
	}
}

// surging tells whether the successor of the one old pod is on its way or not
// available yet, or a second pod may still run.
func (j *judgement) surging() bool {
	switch {
	case j.live > 0 && j.leaving > 0:
		return true
	case j.oldLive != 1 || j.newLive > 1:
		return false
	case j.newLive == 1:
		return !j.isUp(j.oldestNew) && !j.lost()
	}
	return j.cell.creating.name != "" || j.cell.unanswered != ""
}

// lost tells whether the new pod waits for a node that takes it no longer: nobody
// binds it while the node's taint stays, and the other nodes shall not wait.
func (j *judgement) lost() bool {
	return j.cell.eligibility != ShouldRun && j.newLive == 1 && !j.oldestNew.info.Bound
}

// stranded: the Node object is gone. A bound pod is for the pod garbage
// collector; one that nobody will ever bind is ours to delete.
func (j *judgement) stranded() {
	for _, p := range j.cell.pods {
		if p.live() && !p.info.Bound {
			j.remove(p, ReasonNodeGone)
		}
	}
	switch {
	case j.mapped > 0:
		j.verdict.phase = Stranded
	case j.cell.creating.name != "":
		j.verdict.phase = Creating
	}
}

// unfit: no pod is to be on the node, or its turn to lose it has come.
func (j *judgement) unfit() {
	why := ReasonNodeUnfit
	if j.guided && j.order.Change {
		why = ReasonTurn
	}
	for _, p := range j.cell.pods {
		if p.live() {
			j.remove(p, why)
		}
	}
	switch {
	case j.live > 0:
		j.verdict.phase = Misscheduled
	case j.mapped > 0:
		j.verdict.phase = Terminating
	case j.cell.creating.name != "":
		j.verdict.phase = Creating
	}
}

// empty: no live pod on a node that fits. Without surge a pod that is still
// going keeps its place; with surge the next one waits only until the deletion
// is known to be done, so that it never meets two.
func (j *judgement) empty() {
	wanted := j.cell.eligibility == ShouldRun
	switch {
	case j.cell.creating.name != "":
		j.verdict.phase = Creating
	case wanted && (j.mapped == 0 || j.surge && j.leaving == 0):
		if j.verdict.phase = Missing; j.mayCreate() {
			j.verdict.work = workCreate
		}
	case j.mapped > 0:
		j.verdict.phase = Terminating
	}
}

// housekeeping removes finished pods and pods too many.
func (j *judgement) housekeeping() {
	backoffUntil := j.cell.failures.until(j.spec.Generation)
	failedOnce := false
	for _, p := range j.cell.pods {
		if !p.live() {
			continue
		}
		switch {
		case p.info.Phase == PodSucceeded:
			j.remove(p, ReasonSucceeded)
		case p.info.Phase == PodFailed && backoffUntil.After(j.now):
			j.wakeAt(backoffUntil)
		case p.info.Phase == PodFailed && !failedOnce:
			failedOnce = true
			j.remove(p, ReasonFailed)
		case p.info.Phase == PodActive && j.tooMany(p):
			j.surplus = true
			j.remove(p, ReasonDuplicate)
		}
	}
	if j.surge && j.activeOld != nil && j.activeNew != nil {
		j.handOver()
	}
}

// handOver lets the old pod go once the new one can do without it.
func (j *judgement) handOver() {
	switch {
	case !j.activeOld.info.Ready:
		j.remove(j.activeOld, ReasonSurgeOldNotReady)
	case j.isUp(j.activeNew):
		j.remove(j.activeOld, ReasonSurgeDone)
	}
}

// tooMany: one active pod may stay, with surge one of each revision.
func (j *judgement) tooMany(p *trackedPod) bool {
	if j.surge {
		return p != j.activeOld && p != j.activeNew
	}
	return p != j.activeFirst
}

// rollout decides about a cell with a live pod of an older revision.
func (j *judgement) rollout() {
	switch {
	case j.spec.Strategy.OnDelete || j.oldLive != 1 || j.newLive > 1:
	case j.newLive == 1:
		j.succession()
	case j.waitsForTurn():
	case j.surge:
		j.surgeRollout()
	case j.guided && j.isAvailable(j.oldestOld):
		j.remove(j.oldestOld, ReasonTurn)
	case j.isUp(j.oldestOld):
		j.verdict.work = workReplace
	case j.isAvailable(j.oldestOld):
		// It uses the budget already: only an answer is missing.
		j.remove(j.oldestOld, ReasonOutdated)
	default:
		j.remove(j.oldestOld, ReasonOutdatedUnavailable)
	}
}

// succession decides about the old pod when its successor is there.
func (j *judgement) succession() {
	switch {
	case !j.surge:
	case j.isUp(j.oldestNew):
		j.remove(j.oldestOld, ReasonSurgeDone)
	case j.lost():
		j.sunset()
	}
}

// surgeRollout: the only live pod has an older revision. Where the daemon is
// wanted it gets company; where it is not, it goes.
func (j *judgement) surgeRollout() {
	wanted, available := j.cell.eligibility == ShouldRun, j.isAvailable(j.oldestOld)
	switch {
	case j.cell.creating.name != "":
	case wanted && j.leaving > 0:
	case wanted && available && j.cell.unanswered == "" && !j.guided:
		j.verdict.work = workSurge
	case wanted: // also what got no answer, and so uses the budget already
		j.verdict.work = workCreate
	default:
		j.sunset()
	}
}

// sunset lets the old pod of a node that is no longer wanted go.
func (j *judgement) sunset() {
	switch {
	case j.isUp(j.oldestOld):
		j.verdict.work = workSunset
	case j.isAvailable(j.oldestOld):
		j.remove(j.oldestOld, ReasonSunset)
	default:
		j.remove(j.oldestOld, ReasonOutdatedUnavailable)
	}
}

func (j *judgement) occupiedPhase() Phase {
	switch {
	case j.finished > 0:
		return Failing
	case j.surplus:
		return Excess
	case j.cell.eligibility != ShouldRun:
		return Misscheduled
	case j.surge && j.activeOld != nil && (j.activeNew != nil || j.cell.creating.name != ""):
		return Surging
	case j.activeOld != nil && j.isAvailable(j.activeOld):
		return Outdated
	case j.activeOld != nil:
		return OutdatedUnavailable
	case j.isAvailable(j.activeNew):
		return Available
	}
	return Progressing
}

// remove puts the pod on the list, once.
func (j *judgement) remove(p *trackedPod, why Reason) {
	for _, r := range j.removals {
		if r.pod == p {
			return
		}
	}
	j.removals = append(j.removals, removal{p, why})
}

// settleWork lets removals go first, holds back what failed lately, and
// everything while a pod is being adopted.
func (j *judgement) settleWork() {
	if j.adopting {
		j.verdict.work, j.removals = workNone, nil
		return
	}
	if len(j.removals) > 0 {
		j.verdict.work = workRemove
	}
	failed := &j.cell.deletions
	switch j.verdict.work {
	case workNone:
		return
	case workCreate, workSurge:
		failed = &j.cell.setback
	}
	j.verdict.rank = failed.failures
	if failed.until.After(j.now) {
		j.wakeAt(failed.until)
		j.postponed, j.verdict.work, j.removals = j.verdict.work, workNone, nil
	}
}
