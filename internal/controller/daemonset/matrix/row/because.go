package row

import (
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Because says why nothing is done at the moment for a cell that is not as it should be.
type Because string

// The reasons for doing nothing. Those from PodTerminating on are said of a pod.
const (
	AsWanted          Because = ""
	SetDeleting       Because = "DaemonSet is being deleted"
	RevisionUnknown   Because = "current revision is being worked out"
	CreationUnderWay  Because = "creation is under way"
	CreationNotSeen   Because = "pod was created and is not seen yet"
	CreationFailed    Because = "last creation failed, and the next try is later"
	OtherCreations    Because = "other creations go first"
	DeletionUnderWay  Because = "deletion is under way"
	ContentUnderWay   Because = "pod is being given the revision's content"
	DeletionFailed    Because = "last deletion failed, and the next try is later"
	OtherDeletions    Because = "other deletions go first"
	FailedAgain       Because = "pod failed again, and its back-off is not over"
	MaxUnavailable    Because = "maxUnavailable is used up"
	MaxSurge          Because = "maxSurge is used up"
	SuccessorNotReady Because = "successor is not available yet"
	TooFewElsewhere   Because = "too few pods are available elsewhere"
	WaitsForTurn      Because = "rollout has not come to this node"
	WaitsForUser      Because = "old pod is replaced when somebody deletes it"
	MayStay           Because = "node takes no new pods, and keeps what it has"
	LeftToCollector   Because = "bound pods of a node that is gone are left to the pod garbage collector"
	Adopting          Because = "pod is being adopted"
	PodTerminating    Because = "is terminating"
	PodFailing        Because = "has failed"
	PodSucceeding     Because = "has succeeded"
	PodUnplaceable    Because = "cannot be placed"
	PodUnscheduled    Because = "is not scheduled yet"
	PodNotReady       Because = "is not ready"
	PodNotMounted     Because = "does not show the revision's content yet"
	PodNoRoom         Because = "is to have more than its node has room for"
	PodResized        Because = "is being given the revision's amounts"
	PodReadyTooShort  Because = "has not been ready for long enough yet"
	PodUnsure         Because = "may have been deleted: there was no answer"
	TooManyPods       Because = "more than one pod"
)

// because explains one cell, after Ready has taken what could be done.
func (r *Row) because(c *cell) Because {
	j := r.judge(c, r.order(c.node))
	switch {
	case j.asWanted():
		return AsWanted
	case r.info.Deleting:
		return SetDeleting
	case j.verdict.work == workNone:
		return j.idle()
	case r.info.Held:
		return RevisionUnknown
	}
	maxUnavailable, maxSurge := r.budget()
	switch t := &r.totals; {
	case j.verdict.work == workCreate:
		return OtherCreations
	case (j.verdict.work == workSurge || j.verdict.work == workResize) && int(t[surging]) >= maxSurge:
		return MaxSurge
	case j.verdict.work == workSurge:
		return OtherCreations
	case j.verdict.work == workReplace && int(t[down]) >= maxUnavailable:
		return MaxUnavailable
	case j.verdict.work == workSunset && t[up] <= t[desired]:
		return TooFewElsewhere
	}
	return OtherDeletions
}

// asWanted: one pod, available and up to date, or none where none should be.
func (j *judgement) asWanted() bool {
	if j.cell.column == nil || j.cell.eligibility != placement.ShouldRun {
		return j.mapped == 0 && j.cell.creating.name == ""
	}
	return j.mapped == 1 && j.newLive == 1 && j.finished == 0 && !j.adopting && j.cell.creating.name == "" &&
		j.isUp(j.oldestNew)
}

// idle explains a cell that wants nothing done now.
func (j *judgement) idle() Because {
	switch c := j.cell; {
	case j.adopting:
		return Adopting
	case c.creating.answered:
		return CreationNotSeen
	case c.creating.name != "":
		return CreationUnderWay
	case j.postponed == workCreate || j.postponed == workSurge:
		return CreationFailed
	case j.postponed != workNone:
		return DeletionFailed
	case j.leaving > 0:
		return DeletionUnderWay
	case j.oldestOld != nil && !j.oldestOld.pointedUntil.IsZero():
		return ContentUnderWay
	case j.live == 0 && j.mapped == 0 && j.guided:
		return WaitsForTurn
	case j.live == 0:
		return PodTerminating
	}
	return j.occupied()
}

// occupied explains a cell with a live pod that wants nothing done now.
func (j *judgement) occupied() Because {
	switch c := j.cell; {
	case c.column == nil:
		return LeftToCollector
	case j.finished > 0:
		return FailedAgain
	case c.eligibility != placement.ShouldRun && j.row.eligibleBy(j.order.Target, c) == placement.ShouldNotRun:
		return WaitsForTurn
	case c.eligibility != placement.ShouldRun:
		return MayStay
	case j.oldLive > 0 && j.newLive > 0:
		return SuccessorNotReady
	case j.oldLive > 0 && j.guided:
		return WaitsForTurn
	case j.oldLive > 0:
		return WaitsForUser
	}
	if why := j.row.trouble(j.oldestNew); why != TooManyPods || j.mapped == j.live {
		return why
	}
	return PodTerminating // of another pod
}

// either is the first of a pod that was resized.
func (p *Pod) either(resized, other Because) Because {
	if p.info.Resized {
		return resized
	}
	return other
}

// trouble says what a pod lacks.
func (r *Row) trouble(p *Pod) Because {
	switch at, ready := p.availableAt(r.info.MinReadySeconds); {
	case !p.live():
		return PodTerminating
	case p.info.Phase == fact.PodFailed:
		return PodFailing
	case p.info.Phase == fact.PodSucceeded:
		return PodSucceeding
	case p.info.Unplaceable != "":
		return p.either(PodNoRoom, PodUnplaceable)
	case !p.info.Bound:
		return PodUnscheduled
	case !p.info.Ready:
		return PodNotReady
	case p.info.Between:
		return PodResized
	case !p.info.Pointed.IsZero() && p.mountedFrom.IsZero():
		return p.either(PodResized, PodNotMounted)
	case !ready || at.After(r.now):
		return PodReadyTooShort
	case !p.unsureUntil.IsZero():
		return PodUnsure
	}
	return TooManyPods
}
