package row

import (
	"time"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// verdict is what follows from the present facts of one cell for its row.
type verdict struct {
	work   work
	counts counts
	// rank orders the cells that want the same work: how often it failed.
	rank int32
}

// removal is one pod to delete now.
type removal struct {
	pod    *Pod
	reason action.Reason
}

// todo is how the work of a cell is done: the pods to delete, within the budget if the work has one,
// or why one is to be made.
type todo struct {
	removals []removal
	why      action.Reason
}

// judgement computes the verdict of one cell. It changes nothing.
type judgement struct {
	row   *Row
	cell  *cell
	spec  *fact.DaemonSet
	surge bool
	now   time.Time
	// guided: the row follows a policy. order is what its rollout says of the cell.
	guided bool
	order  standing.Order
	census

	verdict verdict
	todo
	// postponed is work that failed and waits for its next try, wake when the judgement may
	// change by time alone; zero means never.
	postponed work
	wake      time.Time
}

// judge computes what follows for one cell that is to be as the order says.
func (r *Row) judge(c *cell, order standing.Order) *judgement {
	j := &judgement{row: r, cell: c, spec: &r.info, surge: r.surge, now: r.now, guided: r.guide != nil, order: order,
		census: takeCensus(c.pods, order.Target)}
	j.countStatus()
	j.wakeAt(c.expectation())
	switch {
	case r.cfg.Guest:
		j.beside()
		j.fetches()
	case c.column == nil:
		j.stranded()
	case c.eligibility == placement.ShouldNotRun:
		j.countRollout()
		j.unfit()
	case j.live == 0:
		j.countRollout()
		j.empty()
	default:
		j.countRollout()
		j.housekeeping()
		j.rollout()
		j.fetches()
	}
	j.settleWork()
	return j
}

func (j *judgement) wakeAt(t time.Time) { j.wake = deadline.Sooner(j.wake, t) }

// isAvailable also arms the timer for the moment when the answer turns.
func (j *judgement) isAvailable(p *Pod) bool {
	at, ok := p.availableAt(j.spec.MinReadySeconds)
	if ok && at.After(j.now) {
		j.wakeAt(at)
		return false
	}
	return ok
}

// isUp reports whether the rollout may rely on the pod.
func (j *judgement) isUp(p *Pod) bool {
	return p.unsureUntil.IsZero() && p.pointedUntil.IsZero() && j.isAvailable(p)
}

func (j *judgement) count(n count, is bool) {
	if is {
		j.verdict.counts |= 1 << n
	}
}

func (j *judgement) countStatus() {
	here := j.mapped > 0
	switch {
	case j.cell.column == nil:
		return
	case j.cell.eligibility != placement.ShouldRun:
		j.count(misscheduled, here)
		return
	}
	works, newest := here && j.isAvailable(j.first), here && j.first.info.Revision == j.spec.Revision
	j.count(desired, true)
	j.count(troubled, j.cell.setback.failures > 0)
	j.count(current, here)
	j.count(ready, here && j.first.info.Ready)
	j.count(updated, newest)
	j.count(available, works)
	j.count(lacking, !works)
	j.count(outdated, works && !newest)
}

// countRollout counts the cell for the budget. A cell with a pod too many or
// with none counts as unavailable; while surging it counts as surging.
func (j *judgement) countRollout() {
	if j.cell.eligibility != placement.ShouldRun && (j.mapped == 0 || j.mapped == 1 && (j.lost() || j.held())) {
		return
	}
	muddled, oldest := j.oldLive > 1 || j.newLive > 1, firstOf(j.oldestOld, j.oldestNew)
	works := !muddled && oldest != nil && j.isUp(oldest)
	j.count(up, works)
	j.count(down, muddled || j.oldLive == j.newLive || !works)
	j.count(surging, muddled || j.surging())
}

// surging reports whether the successor of the one old pod is on its way or not
// available yet, or a second pod may still run.
func (j *judgement) surging() bool {
	switch {
	case j.live > 0 && j.leaving > 0, j.beingResized():
		return true
	case j.oldLive != 1 || j.newLive > 1:
		return false
	case j.newLive == 1:
		return !j.isUp(j.oldestNew) && !j.lost()
	}
	return j.cell.creating.name != "" || j.cell.unanswered != ""
}

// lost reports whether the new pod waits for a node that takes it no longer: nobody
// binds it while the node's taint stays, and the other nodes shall not wait.
func (j *judgement) lost() bool {
	return j.cell.eligibility != placement.ShouldRun && j.newLive == 1 && !j.oldestNew.info.Bound
}

// beside: another controller makes pods and tidies up. It makes no pod where it would not let one run, so none goes
// there.
func (j *judgement) beside() {
	if j.cell.column == nil {
		return
	}
	j.countRollout()
	if j.live > 0 && j.cell.eligibility == placement.ShouldRun {
		j.rollout()
	}
}

// stranded: the Node object is gone. A bound pod is for the pod garbage
// collector; one that nobody will ever bind is ours to delete.
func (j *judgement) stranded() {
	for _, p := range j.cell.pods {
		if p.live() && !p.info.Bound {
			j.remove(p, action.ReasonNodeGone)
		}
	}
}

// unfit: no pod is to be on the node, or its turn to lose it has come.
func (j *judgement) unfit() {
	why := action.ReasonNodeUnfit
	if j.guided && j.order.Change {
		why = action.ReasonTurn
	}
	for _, p := range j.cell.pods {
		if p.live() {
			j.remove(p, why)
		}
	}
}

// empty: no live pod on a node that fits. Without surge a pod that is still going keeps its place; with surge the next
// one waits only until the deletion is known to be done, so that it never meets two.
func (j *judgement) empty() {
	wanted, free := j.cell.eligibility == placement.ShouldRun, j.mapped == 0 || j.surge && j.leaving == 0
	if wanted && free && j.cell.creating.name == "" && j.mayCreate() {
		j.create(workCreate, action.ReasonMissing)
	}
}

// housekeeping removes finished pods and pods too many.
func (j *judgement) housekeeping() {
	backoffUntil := j.cell.failures.Until(j.spec.Generation)
	failedOnce := false
	for _, p := range j.cell.pods {
		if !p.live() {
			continue
		}
		switch {
		case p.info.Phase == fact.PodSucceeded:
			j.remove(p, action.ReasonSucceeded)
		case p.info.Phase == fact.PodFailed && backoffUntil.After(j.now):
			j.wakeAt(backoffUntil)
		case p.info.Phase == fact.PodFailed && !failedOnce:
			failedOnce = true
			j.remove(p, action.ReasonFailed)
		case p.info.Phase == fact.PodActive && j.tooMany(p):
			j.remove(p, action.ReasonDuplicate)
		case p.info.Revision == j.order.Target && j.isSilent(p):
			j.remove(p, action.ReasonNotMounted)
		}
	}
	j.handOver()
}

// isSilent reports whether the pod's node, which is in order and takes another one, never says that the pod has the
// content that it was pointed at.
func (j *judgement) isSilent(p *Pod) bool {
	if j.cell.eligibility != placement.ShouldRun || j.cell.column.Health.Fault != "" {
		return false
	}
	silent, from := p.silent(j.now, j.cell.column.Back)
	if !silent {
		j.wakeAt(from)
	}
	return silent
}

// handOver lets the old pod go once the new one can do without it, where both are there.
func (j *judgement) handOver() {
	switch {
	case !j.surge || j.activeOld == nil || j.activeNew == nil:
	case !j.activeOld.info.Ready && !j.recovers(j.activeOld):
		j.remove(j.activeOld, action.ReasonSurgeOldNotReady)
	case j.isUp(j.activeNew):
		j.remove(j.activeOld, action.ReasonSurgeDone)
	}
}

// tooMany: one active pod may stay, with surge one of each revision.
func (j *judgement) tooMany(p *Pod) bool {
	if j.surge {
		return p != j.activeOld && p != j.activeNew
	}
	return p != j.stays()
}

// stays is the active pod that stays where one may: the oldest. Under a policy it is one of the target that works
// beside an older pod that does not: working daemons go in their turn alone.
func (j *judgement) stays() *Pod {
	fromSurge := j.guided && j.activeOld != nil && j.activeNew != nil
	if fromSurge && j.isUp(j.activeNew) && !j.isUp(j.activeOld) {
		return j.activeNew
	}
	return j.activeFirst
}

// rollout decides about a cell with a live pod of an older revision.
func (j *judgement) rollout() {
	switch {
	case j.spec.Strategy.OnDelete || j.oldLive != 1 || j.newLive > 1 || j.held():
	case j.newLive == 1:
		j.succession()
	case j.waitsForTurn(), !j.oldestOld.pointedUntil.IsZero():
	case j.resizes(j.oldestOld):
		j.resize()
	case j.surge:
		j.surgeRollout()
	case j.points(j.oldestOld):
		j.remove(j.oldestOld, action.ReasonLive)
	case j.guided && j.isAvailable(j.oldestOld):
		j.remove(j.oldestOld, action.ReasonTurn)
	case j.isUp(j.oldestOld):
		j.replace(workReplace, action.ReasonOutdated)
	case j.isAvailable(j.oldestOld):
		// It uses the budget already: only an answer is missing.
		j.remove(j.oldestOld, action.ReasonOutdated)
	default:
		j.remove(j.oldestOld, action.ReasonOutdatedUnavailable)
	}
}

// points reports whether the pod can become one of the revision that the cell is to have without a restart. One that
// is not ready has nothing to lose by a restart, and waits for no back-off after it.
func (j *judgement) points(p *Pod) bool {
	if j.cell.eligibility != placement.ShouldRun {
		return false
	}
	silent, _ := p.silent(j.now, j.cell.column.Back)
	return j.guided && p.info.Ready && p.info.Bound && !silent && p.unpointable != j.order.Target &&
		j.cell.column.Node.Labels[content.LiveName] == "true" && j.spec.Live.Leads(p.info.Revision, j.order.Target)
}

// resizes reports whether to try to give the pod other amounts of cpu and memory in place: it differs in its variants
// alone. Whether that can be shows when it is tried. For one that is not ready it is as with points.
func (j *judgement) resizes(p *Pod) bool {
	is, want, plain := p.info.Revision, j.order.Target, content.WithVariants(j.order.Target, "")
	same := plain == content.WithVariants(is, "") || plain == content.TemplateOf(is) // that has what is no content now
	return p.info.Ready && p.info.Bound && same && content.VariantsOf(is) != content.VariantsOf(want) &&
		p.unpointable != want && j.cell.column != nil && j.cell.eligibility == placement.ShouldRun
}

// succession decides about the old pod when its successor is there.
func (j *judgement) succession() {
	switch {
	case !j.surge:
	case j.isUp(j.oldestNew):
		j.remove(j.oldestOld, action.ReasonSurgeDone)
	case j.lost():
		j.sunset()
	}
}

// surgeRollout: the only live pod has an older revision. Where the daemon is
// wanted it gets company; where it is not, it goes.
func (j *judgement) surgeRollout() {
	wanted := j.cell.eligibility == placement.ShouldRun
	switch {
	case j.cell.creating.name != "":
	case wanted && j.leaving > 0:
	case wanted && j.guided:
		j.create(workCreate, action.ReasonTurn)
	case wanted && j.cell.unanswered != "": // it uses the budget already
		j.create(workCreate, action.ReasonSurge)
	case wanted && j.isAvailable(j.oldestOld):
		j.create(workSurge, action.ReasonSurge)
	case wanted:
		j.create(workCreate, action.ReasonSurgeUnavailable)
	default:
		j.sunset()
	}
}

// sunset lets the old pod of a node that is no longer wanted go.
func (j *judgement) sunset() {
	switch {
	case j.isUp(j.oldestOld):
		j.replace(workSunset, action.ReasonSunset)
	case j.isAvailable(j.oldestOld):
		j.remove(j.oldestOld, action.ReasonSunset)
	default:
		j.remove(j.oldestOld, action.ReasonOutdatedUnavailable)
	}
}

// create wants a pod made. What is to go now goes first.
func (j *judgement) create(w work, why action.Reason) {
	if len(j.removals) == 0 {
		j.verdict.work, j.why = w, why
	}
}

// replace wants the old pod deleted within a budget.
func (j *judgement) replace(w work, why action.Reason) {
	if len(j.removals) == 0 {
		j.verdict.work, j.removals = w, []removal{{j.oldestOld, why}}
	}
}

// remove puts the pod on the list, once.
func (j *judgement) remove(p *Pod, why action.Reason) {
	for _, r := range j.removals {
		if r.pod == p {
			return
		}
	}
	j.verdict.work, j.removals = workRemove, append(j.removals, removal{p, why})
}

// settleWork holds back what failed lately, and everything while a pod is being adopted.
func (j *judgement) settleWork() {
	if j.adopting {
		j.verdict.work, j.removals = workNone, nil
		return
	}
	failed := &j.cell.deletions
	switch j.verdict.work {
	case workNone:
		return
	case workFetch:
		failed = &j.cell.fetches
	case workCreate, workSurge:
		failed = &j.cell.setback
	}
	j.verdict.rank = int32(failed.failures)
	if failed.until.After(j.now) {
		j.wakeAt(failed.until)
		j.postponed, j.verdict.work, j.removals = j.verdict.work, workNone, nil
	}
}

// waitsForTurn: the rollout has not let the cell's change begin. A creation beside the old pod
// that got no answer has begun; that gives nobody leave to delete the old one.
func (j *judgement) waitsForTurn() bool {
	creates := j.surge && j.cell.eligibility == placement.ShouldRun
	return j.guided && !j.order.Change && !(creates && j.cell.unanswered != "")
}

// mayCreate reports whether a pod may be made where there is none.
func (j *judgement) mayCreate() bool {
	return j.order.Create || j.guided && j.cell.unanswered != "" && j.order.Target != ""
}

// census sorts the pods of a cell.
type census struct {
	mapped, live, finished            int
	oldLive, newLive                  int
	first                             *Pod // of the mapped
	oldestOld, oldestNew              *Pod // of the live
	activeFirst, activeOld, activeNew *Pod // of the active
	adopting                          bool
	// leaving are pods whose deletion is in flight: for all we know they run.
	leaving int
}

func takeCensus(pods []*Pod, revision string) census {
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
		updated, active := p.info.Revision == revision, p.info.Phase == fact.PodActive
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

func firstOf(have, p *Pod) *Pod {
	if have != nil {
		return have
	}
	return p
}

// live reports whether the pod is not on its way out.
func (p *Pod) live() bool { return !p.info.Terminating && p.doomedUntil.IsZero() }

// mapped reports whether the pod occupies its cell: a finished pod whose deletion hangs on a finalizer does not.
func (p *Pod) mapped() bool { return p.info.Phase == fact.PodActive || !p.info.Terminating }

// availableAt returns from when on the pod counts as available; false if it is not on its way there.
func (p *Pod) availableAt(minReadySeconds int32) (time.Time, bool) {
	shows := time.Time{}
	if !p.info.Pointed.IsZero() {
		shows = p.mountedFrom.Add(p.info.Settle)
	}
	switch {
	case !p.info.Ready, p.info.Between, !p.info.Pointed.IsZero() && p.mountedFrom.IsZero():
		return time.Time{}, false
	case minReadySeconds <= 0:
		return shows, true
	case p.readyFrom.IsZero():
		return time.Time{}, false
	}
	return deadline.Later(p.readyFrom.Add(time.Duration(minReadySeconds)*time.Second), shows), true
}
