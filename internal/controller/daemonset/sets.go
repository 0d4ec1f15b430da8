package daemonset

import (
	"context"
	"iter"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/claim"
	"github.com/everynode/everynode/internal/controller/daemonset/history"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
)

// daemonSet is what the owner knows of one DaemonSet beside its row.
type daemonSet struct {
	// latest is the newest version seen; acted is the one whose spec the matrix
	// acts on. They differ while a new template's revision is being written.
	latest, acted *appsv1.DaemonSet
	selector      labels.Selector
	selectsAll    bool
	mold          *podMold
	placement     *matrix.Placement
	// revision is the current hash, worked out for planned's generation.
	revision string
	planned  int64
	stale    bool // the revisions changed since
	merging  bool // pods are getting the hash of another revision

	historyJob, cleanupJob, claimJob jobState
	toAdopt, toRelease               *podQueue
	adopting                         map[types.UID]bool // sent, not answered
}

// mayAct tells whether pods may be changed for the DaemonSet at all.
func (s *daemonSet) mayAct() bool { return !s.selectsAll && s.latest.DeletionTimestamp == nil }

func (o *owner) onDaemonSet(ds *appsv1.DaemonSet) {
	s := o.sets[ds.UID]
	if s == nil {
		o.addDaemonSet(ds)
		return
	}
	if outdated(ds, s.latest) {
		return
	}
	s.latest = ds
	o.sync(s)
}

// sawDaemonSet takes note of a version that a write of ours returned.
func (o *owner) sawDaemonSet(ds *appsv1.DaemonSet) {
	if o.sets[ds.UID] != nil {
		o.onDaemonSet(ds)
	}
}

func (o *owner) addDaemonSet(ds *appsv1.DaemonSet) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		o.log.Error(err, "DaemonSet has a selector that cannot be read", "daemonSet", klog.KObj(ds))
		return
	}
	s := &daemonSet{
		latest: ds, selector: selector, selectsAll: selector.Empty(), planned: -1,
		toAdopt: newPodQueue(), toRelease: newPodQueue(), adopting: map[types.UID]bool{},
	}
	o.sets[ds.UID] = s
	putIn(o.setsIn, ds.Namespace, ds.UID, s)
	if s.selectsAll {
		o.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, "SelectingAll",
			"This daemon set is selecting all pods. A non-empty selector is required.")
		return
	}
	for _, p := range slices.Concat(byName(o.pods.byOwner[ds.UID]), byName(o.pods.orphans[ds.Namespace])) {
		o.claimPod(p)
	}
	o.sync(s)
}

func (o *owner) onDaemonSetGone(ds *appsv1.DaemonSet) {
	s := o.sets[ds.UID]
	if s == nil {
		return
	}
	delete(o.sets, ds.UID)
	dropFrom(o.setsIn, ds.Namespace, ds.UID)
	delete(o.claims, ds.UID)
	delete(o.retries, ds.UID)
	o.core.Step(matrix.DaemonSetGone(ds.UID))
	// Pods it was about to adopt may now be another's.
	for _, p := range byName(o.pods.orphans[ds.Namespace]) {
		o.claimPod(p)
	}
}

// sync brings the row in line with the newest version, after its revision is
// known.
func (o *owner) sync(s *daemonSet) {
	switch {
	case s.selectsAll:
	case s.latest.DeletionTimestamp != nil:
		o.push(s)
	case s.planned != s.latest.Generation || s.stale:
		o.planHistory(s)
	default:
		o.accept(s)
	}
}

// accept makes the newest version the one that is acted on.
func (o *owner) accept(s *daemonSet) {
	o.act(s, s.latest)
	o.push(s)
	o.cleanUp(s)
}

// act has the matrix act on a version's spec from the next push on.
func (o *owner) act(s *daemonSet, ds *appsv1.DaemonSet) {
	if s.acted == nil || s.acted.Generation != ds.Generation {
		s.mold = newPodMold(ds)
		s.placement = matrix.CompilePlacement(&ds.Spec.Template.Spec)
	}
	s.acted = ds
}

// push tells the matrix about the row. While the hash of the newest template is
// not known, or pods are getting it, the row is held: it neither starts pods of
// a template that is out of date nor stops any.
func (o *owner) push(s *daemonSet) {
	ds := s.acted
	if ds == nil {
		return
	}
	o.core.Step(matrix.DaemonSetInfo{
		UID: ds.UID, Namespace: ds.Namespace, Name: ds.Name, Generation: ds.Generation,
		Revision: s.revision, Placement: s.placement, Strategy: strategyOf(ds),
		MinReadySeconds: ds.Spec.MinReadySeconds,
		Held:            s.merging || s.planned != s.latest.Generation, Deleting: s.latest.DeletionTimestamp != nil,
		Reported:   matrix.ProjectStatus(&s.latest.Status),
		Conditions: matrix.ProjectConditions(&s.latest.Status),
	})
}

func strategyOf(ds *appsv1.DaemonSet) matrix.Strategy {
	st := matrix.Strategy{OnDelete: ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType}
	if ru := ds.Spec.UpdateStrategy.RollingUpdate; ru != nil && !st.OnDelete {
		if ru.MaxUnavailable != nil {
			st.MaxUnavailable = *ru.MaxUnavailable
		}
		if ru.MaxSurge != nil {
			st.MaxSurge = *ru.MaxSurge
		}
	}
	return st
}

// onRevision keeps the index and plans anew where the change can matter. One
// that merely appears under our ownership is our own doing, unless it takes the
// current one's number.
func (o *owner) onRevision(r *appsv1.ControllerRevision, c change) {
	known := o.revisions.has(r.UID)
	if c.deleted {
		o.revisions.drop(r.UID)
	} else if !o.revisions.put(r) {
		return
	}
	owned := metav1.GetControllerOfNoCopy(r) != nil
	if owned && c.added && !c.deleted && (known || !o.disturbs(r)) || !owned && c.deleted {
		return
	}
	for _, s := range o.setsIn[r.Namespace] {
		if ownerOf(r) == s.latest.UID || !owned && s.selector.Matches(labels.Set(r.Labels)) {
			s.stale = true
			o.sync(s)
		}
	}
}

// disturbs tells whether a revision that just appeared has another template than
// its DaemonSet now, and a number as high as the current one's: its creation got
// no answer, and meanwhile the template changed.
func (o *owner) disturbs(r *appsv1.ControllerRevision) bool {
	s := o.sets[ownerOf(r)]
	if s == nil || history.HashOf(r) == s.revision || history.Holds(r, &s.latest.Spec.Template, nil, o.cfg.NormalizeTemplate) {
		return false
	}
	for _, current := range o.revisions.byOwner[s.latest.UID] {
		if history.HashOf(current) == s.revision {
			return r.Revision >= current.Revision
		}
	}
	return true
}

// planHistory works out the current revision.
func (o *owner) planHistory(s *daemonSet) {
	if s.historyJob.busy {
		s.stale = true
		o.push(s)
		return
	}
	if s.historyJob.retryAt.After(o.now) {
		o.push(s)
		o.retryAt(s.latest.UID, s.historyJob.retryAt)
		return
	}
	job := revisionJob{ds: s.latest, normalize: o.cfg.NormalizeTemplate}
	var owned []*appsv1.ControllerRevision
	for r := range o.revisionsNear(s) {
		switch claim.Judge(s.latest, s.selector, r) {
		case claim.Mine:
			owned = append(owned, r)
		case claim.Adopt:
			owned = append(owned, r)
			job.adopt = append(job.adopt, r)
		case claim.Release:
			job.release = append(job.release, r)
		}
	}
	plan, err := history.Compute(history.Input{DaemonSet: s.latest, Revisions: owned, Normalize: o.cfg.NormalizeTemplate})
	if err != nil {
		o.log.Error(err, "Cannot plan revisions", "daemonSet", klog.KObj(s.latest))
		return
	}
	s.stale, s.merging = false, len(plan.Duplicates) > 0
	if plan.Settled() && len(job.adopt)+len(job.release) == 0 {
		s.revision, s.planned = history.HashOf(plan.Current), s.latest.Generation
		o.accept(s)
		return
	}
	job.plan = plan
	for _, d := range plan.Duplicates {
		for _, p := range o.pods.byOwner[s.latest.UID] {
			if p.Labels[appsv1.ControllerRevisionHashLabelKey] == history.HashOf(d) {
				job.relabel = append(job.relabel, p)
			}
		}
	}
	o.push(s)
	s.historyJob.busy = true
	lane := o.rowLane
	if len(job.relabel) > 0 {
		lane = o.claimLane
	}
	uid := s.latest.UID
	lane.submit(func(ctx context.Context) {
		result := o.exec.applyRevisions(ctx, job)
		o.buffer.result(func(o *owner) { o.onHistory(uid, job, result) })
	})
}

// revisionsNear are the DaemonSet's own and those that nothing controls.
func (o *owner) revisionsNear(s *daemonSet) iter.Seq[*appsv1.ControllerRevision] {
	return func(yield func(*appsv1.ControllerRevision) bool) {
		for _, set := range []map[types.UID]*appsv1.ControllerRevision{o.revisions.byOwner[s.latest.UID], o.revisions.orphans[s.latest.Namespace]} {
			for _, r := range set {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (o *owner) onHistory(uid types.UID, job revisionJob, result revisionResult) {
	for _, r := range result.written {
		o.revisions.put(r)
	}
	for _, r := range result.deleted {
		o.revisions.drop(r.UID)
	}
	for _, p := range result.pods {
		// Before the new hash is acted on; the informer may be behind.
		if o.pods.has(p.UID) {
			o.onPod(p)
		}
	}
	s := o.sets[uid]
	if s == nil {
		return
	}
	s.historyJob.finished(result.err != nil, o.now)
	if result.daemonSet != nil && !outdated(result.daemonSet, s.latest) {
		s.latest = result.daemonSet
	}
	if result.err == nil {
		s.merging = false
	} else {
		o.log.Info("Cannot write revisions, will try again", "daemonSet", klog.KObj(s.latest), "err", result.err)
		s.stale = true
		o.retryAt(uid, s.historyJob.retryAt)
	}
	// Once the hash is known the pods need not wait for the rest.
	if result.hash != "" && !s.merging {
		s.revision, s.planned = result.hash, job.ds.Generation
		o.act(s, job.ds)
	}
	o.sync(s)
}

// cleanUp deletes old revisions beyond the limit that no pod carries.
func (o *owner) cleanUp(s *daemonSet) {
	limit := s.latest.Spec.RevisionHistoryLimit
	if limit == nil || s.historyJob.busy || s.stale || s.planned != s.latest.Generation || !s.mayAct() || s.cleanupJob.waits(o.now) {
		return
	}
	var old []*appsv1.ControllerRevision
	for _, r := range o.revisions.byOwner[s.latest.UID] {
		if history.HashOf(r) != s.revision {
			old = append(old, r)
		}
	}
	remove := history.Cleanup(old, int(*limit), func(hash string) bool {
		return o.matrix.PodsOfRevision(s.latest.UID, hash) > 0
	})
	if len(remove) == 0 {
		return
	}
	s.cleanupJob.busy = true
	uid := s.latest.UID
	o.rowLane.submit(func(ctx context.Context) {
		deleted, err := o.exec.deleteRevisions(ctx, remove)
		o.buffer.result(func(o *owner) { o.onCleanUp(uid, deleted, err) })
	})
}

func (o *owner) onCleanUp(uid types.UID, deleted []*appsv1.ControllerRevision, err error) {
	for _, r := range deleted {
		o.revisions.drop(r.UID)
	}
	s := o.sets[uid]
	if s == nil {
		return
	}
	if s.cleanupJob.finished(err != nil, o.now); err != nil {
		o.log.Info("Cannot delete old revisions, will try again", "daemonSet", klog.KObj(s.latest), "err", err)
		o.retryAt(uid, s.cleanupJob.retryAt)
	}
}

// retryAt has the DaemonSet looked at again, at the latest then.
func (o *owner) retryAt(uid types.UID, at time.Time) {
	if have, ok := o.retries[uid]; !ok || at.Before(have) {
		o.retries[uid] = at
	}
}
