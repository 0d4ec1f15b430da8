package belongings

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/objects/claim"
)

// daemonSet is what the owner knows of one DaemonSet beside its row.
type daemonSet struct {
	// latest is the newest version seen; acted is the one whose spec the matrix
	// acts on. They differ while a new template's revision is being written.
	latest, acted *appsv1.DaemonSet
	selector      labels.Selector
	selectsAll    bool
	placement     *placement.Rules
	moreImages    int // see fact.DaemonSet
	// earlier are the placement rules of all revisions, nil until they are asked for.
	earlier *placement.Revisions
	// revision is the current hash, worked out for planned's generation.
	revision string
	planned  int64
	stale    bool // the revisions changed since
	merging  bool // pods are getting the hash of another revision

	historyJob, cleanupJob, claimJob jobState
	toAdopt, toRelease               *podQueue
	adopting                         map[types.UID]bool // sent, not answered
}

// mayAct reports whether pods may be changed for the DaemonSet at all.
func (s *daemonSet) mayAct() bool { return !s.selectsAll && s.latest.DeletionTimestamp == nil }

func (b *Book) onDaemonSet(ds *appsv1.DaemonSet) {
	s := b.sets[ds.UID]
	if s == nil {
		b.addDaemonSet(ds)
		return
	}
	if outdated(ds, s.latest) {
		return
	}
	s.latest = ds
	b.sync(s)
}

func (b *Book) addDaemonSet(ds *appsv1.DaemonSet) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		b.jobs = append(b.jobs, &Notice{DaemonSet: ds, Err: fmt.Errorf("read the selector of DaemonSet %s/%s: %w",
			ds.Namespace, ds.Name, err)})
		return
	}
	s := &daemonSet{
		latest: ds, selector: selector, selectsAll: selector.Empty(), planned: -1,
		toAdopt: newPodQueue(), toRelease: newPodQueue(), adopting: map[types.UID]bool{},
	}
	b.sets[ds.UID] = s
	putIn(b.setsIn, ds.Namespace, ds.UID, s)
	if s.selectsAll {
		b.jobs = append(b.jobs, &Notice{DaemonSet: ds, Reason: "SelectingAll",
			Message: "This daemon set is selecting all pods. A non-empty selector is required."})
		return
	}
	for _, p := range slices.Concat(byName(b.pods.byOwner[ds.UID]), byName(b.pods.orphans[ds.Namespace])) {
		b.claimPod(p)
	}
	b.sync(s)
}

func (b *Book) onDaemonSetGone(ds *appsv1.DaemonSet) {
	s := b.sets[ds.UID]
	if s == nil {
		return
	}
	delete(b.sets, ds.UID)
	dropFrom(b.setsIn, ds.Namespace, ds.UID)
	delete(b.claims, ds.UID)
	delete(b.retries, ds.UID)
	b.rows.Step(fact.DaemonSetGone(ds.UID))
	// Pods it was about to adopt may now be another's.
	for _, p := range byName(b.pods.orphans[ds.Namespace]) {
		b.claimPod(p)
	}
}

// sync brings the row in line with the newest version, after its revision is
// known.
func (b *Book) sync(s *daemonSet) {
	switch {
	case s.selectsAll:
	case s.latest.DeletionTimestamp != nil:
		b.push(s)
	case s.planned != s.latest.Generation || s.stale:
		b.planHistory(s)
	default:
		b.accept(s)
	}
}

// accept makes the newest version the one that is acted on.
func (b *Book) accept(s *daemonSet) {
	b.act(s, s.latest)
	b.push(s)
	b.cleanUp(s)
}

// act has the matrix act on a version's spec from the next push on.
func (b *Book) act(s *daemonSet, ds *appsv1.DaemonSet) {
	if s.acted == nil || s.acted.Generation != ds.Generation {
		s.placement = placement.Compile(&ds.Spec.Template.Spec)
		_, s.moreImages = fetch.Images(&ds.Spec.Template.Spec)
		if b.Guest {
			s.earlier = nil
		}
	}
	s.acted = ds
}

// push tells the matrix about the row. While the hash of the newest template is
// not known, or pods are getting it, the row is held: it neither starts pods of
// a template that is out of date nor stops any.
func (b *Book) push(s *daemonSet) {
	ds := s.acted
	if ds == nil {
		return
	}
	b.rows.Step(fact.DaemonSet{
		UID: ds.UID, Namespace: ds.Namespace, Name: ds.Name, Generation: ds.Generation,
		Revision: s.revision, Digest: b.Digest(ds.UID, s.revision), Placement: s.placement, Earlier: b.placements(s),
		Strategy:        StrategyOf(ds),
		MinReadySeconds: ds.Spec.MinReadySeconds, MoreImages: s.moreImages,
		Held: s.merging || s.planned != s.latest.Generation, Deleting: s.latest.DeletionTimestamp != nil,
		Reported:   fact.StatusOf(&s.latest.Status),
		Conditions: fact.ConditionsOf(&s.latest.Status),
	})
}

// placements are the placement rules of the DaemonSet's revisions.
func (b *Book) placements(s *daemonSet) *placement.Revisions {
	switch {
	case s.earlier != nil:
	case b.Guest:
		s.earlier = &placement.Revisions{ByRevision: map[string]*placement.Rules{}}
		for _, known := range []map[types.UID]*appsv1.ControllerRevision{b.revisions.byOwner[s.latest.UID],
			b.copies[s.latest.UID]} {
			for _, r := range known {
				s.earlier.ByRevision[history.HashOf(r)] = s.placement
			}
		}
	default:
		s.earlier = PlacementsOf(maps.Values(b.revisions.byOwner[s.latest.UID]))
	}
	return s.earlier
}

// PlacementsOf reads the placement rules of revisions. What cannot be read is left out.
func PlacementsOf(revisions iter.Seq[*appsv1.ControllerRevision]) *placement.Revisions {
	out := &placement.Revisions{ByRevision: map[string]*placement.Rules{}}
	for r := range revisions {
		if template, err := history.Template(r); err == nil {
			out.ByRevision[history.HashOf(r)] = placement.Compile(&template.Spec)
		}
	}
	return out
}

// putRevision and dropRevision keep the index, and what was read from it.
func (b *Book) putRevision(r *appsv1.ControllerRevision) bool {
	b.reread(r.UID)
	put := b.revisions.put(r)
	b.reread(r.UID)
	return put
}

func (b *Book) dropRevision(uid types.UID) {
	b.reread(uid)
	b.revisions.drop(uid)
}

// reread has the placement rules of the revision's owner be read again.
func (b *Book) reread(uid types.UID) {
	delete(b.digests, uid)
	if r, known := b.revisions.all[uid]; known {
		if s := b.sets[OwnerOf(r)]; s != nil {
			s.earlier = nil
		}
	}
}

// StrategyOf is how a DaemonSet replaces pods of an older revision.
func StrategyOf(ds *appsv1.DaemonSet) fact.Strategy {
	st := fact.Strategy{OnDelete: ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType}
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

// onRevision keeps the index and plans again where the change can matter. One
// that merely appears under our ownership is our own doing, unless it takes the
// current one's number.
func (b *Book) onRevision(e Revision) {
	r := e.Object
	if b.keepCopy(e) {
		return
	}
	known := b.revisions.has(r.UID)
	if e.Gone {
		b.dropRevision(r.UID)
		if b.writing > 0 {
			b.gone[r.UID] = true
		}
	} else if !b.putRevision(r) {
		return
	}
	owned := metav1.GetControllerOfNoCopy(r) != nil
	if b.ownDoing(e, known) || !owned && e.Gone {
		if s := b.sets[OwnerOf(r)]; s != nil {
			b.push(s) // its placement rules are news
		}
		return
	}
	for _, s := range b.setsIn[r.Namespace] {
		if OwnerOf(r) == s.latest.UID || !owned && s.selector.Matches(labels.Set(r.Labels)) {
			s.stale = true
			b.sync(s)
		}
	}
}

// ownDoing reports whether a revision merely appears under our ownership.
func (b *Book) ownDoing(e Revision, known bool) bool {
	appears := e.Added && !e.Gone && metav1.GetControllerOfNoCopy(e.Object) != nil
	return appears && !b.Guest && (known || !b.disturbs(e.Object))
}

// disturbs reports whether a revision that just appeared has another template than
// its DaemonSet now, and a number as high as the current one's: its creation got
// no answer, and meanwhile the template changed.
func (b *Book) disturbs(r *appsv1.ControllerRevision) bool {
	s := b.sets[OwnerOf(r)]
	if s == nil || history.HashOf(r) == s.revision || history.Holds(r, &s.latest.Spec.Template, nil, b.normalize) {
		return false
	}
	for _, current := range b.revisions.byOwner[s.latest.UID] {
		if history.HashOf(current) == s.revision {
			return r.Revision >= current.Revision
		}
	}
	return true
}

// planHistory works out the current revision.
func (b *Book) planHistory(s *daemonSet) {
	if b.Guest {
		b.readHistory(s)
		return
	}
	if s.historyJob.busy {
		s.stale = true
		b.push(s)
		return
	}
	if s.historyJob.retryAt.After(b.now) {
		b.push(s)
		b.retryAt(s.latest.UID, s.historyJob.retryAt)
		return
	}
	job := &RevisionJob{DaemonSet: s.latest}
	var owned []*appsv1.ControllerRevision
	for r := range b.revisionsNear(s) {
		switch claim.Judge(s.latest, s.selector, r) {
		case claim.Mine:
			owned = append(owned, r)
		case claim.Adopt:
			owned = append(owned, r)
			job.Adopt = append(job.Adopt, r)
		case claim.Release:
			job.Release = append(job.Release, r)
		}
	}
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(s.latest), Revisions: owned,
		Normalize: b.normalize})
	if err != nil {
		b.jobs = append(b.jobs, &Notice{DaemonSet: s.latest,
			Err: fmt.Errorf("plan revisions of DaemonSet %s/%s: %w", s.latest.Namespace, s.latest.Name, err)})
		return
	}
	s.stale, s.merging = false, len(plan.Duplicates) > 0
	if plan.Settled() && len(job.Adopt)+len(job.Release) == 0 {
		s.revision, s.planned = history.HashOf(plan.Current), s.latest.Generation
		b.accept(s)
		return
	}
	job.Plan = plan
	for _, d := range plan.Duplicates {
		for _, p := range b.pods.byOwner[s.latest.UID] {
			if p.Labels[appsv1.ControllerRevisionHashLabelKey] == history.HashOf(d) {
				job.Relabel = append(job.Relabel, p)
			}
		}
	}
	b.push(s)
	s.historyJob.busy = true
	b.writing++
	b.jobs = append(b.jobs, job)
}

// readHistory finds the current revision among those that another controller writes. Until it is there the row is held.
func (b *Book) readHistory(s *daemonSet) {
	var owned []*appsv1.ControllerRevision
	for _, r := range b.revisions.byOwner[s.latest.UID] {
		owned = append(owned, r)
	}
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(s.latest), Revisions: owned,
		Normalize: b.normalize})
	if err != nil {
		b.jobs = append(b.jobs, &Notice{DaemonSet: s.latest,
			Err: fmt.Errorf("read revisions of DaemonSet %s/%s: %w", s.latest.Namespace, s.latest.Name, err)})
		return
	}
	s.stale = false
	if plan.Current == nil {
		b.push(s)
		return
	}
	s.revision, s.planned = history.HashOf(plan.Current), s.latest.Generation
	s.earlier = nil
	b.accept(s)
}

// keepCopy takes note of a revision that a rollout keeps; false if it is none.
func (b *Book) keepCopy(e Revision) bool {
	of := types.UID(e.Object.Labels[rollouts.OwnerLabel])
	if !b.Guest || of == "" || OwnerOf(e.Object) != "" {
		return false
	}
	if e.Gone {
		dropFrom(b.copies, of, e.Object.UID)
	} else {
		putIn(b.copies, of, e.Object.UID, e.Object)
	}
	if s := b.sets[of]; s != nil {
		s.earlier = nil
		b.push(s)
	}
	return true
}

// revisionsNear are the DaemonSet's own and those that nothing controls.
func (b *Book) revisionsNear(s *daemonSet) iter.Seq[*appsv1.ControllerRevision] {
	return func(yield func(*appsv1.ControllerRevision) bool) {
		for _, set := range []map[types.UID]*appsv1.ControllerRevision{b.revisions.byOwner[s.latest.UID],
			b.revisions.orphans[s.latest.Namespace]} {
			for _, r := range set {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func (b *Book) onHistory(result RevisionResult) {
	late := false
	for _, r := range result.Written {
		if b.gone[r.UID] {
			late = true
			continue
		}
		b.putRevision(r)
	}
	b.writing--
	if b.writing == 0 {
		clear(b.gone)
	}
	for _, r := range result.Deleted {
		b.dropRevision(r.UID)
	}
	for _, p := range result.Pods {
		// Before the new hash is acted on; the informer may be behind.
		if b.pods.has(p.UID) {
			b.onPod(p)
		}
	}
	ds := result.Job.DaemonSet
	s := b.sets[ds.UID]
	if s == nil {
		return
	}
	s.historyJob.finished(result.Failed, b.now)
	s.stale = s.stale || late
	if result.DaemonSet != nil && !outdated(result.DaemonSet, s.latest) {
		s.latest = result.DaemonSet
	}
	if result.Failed {
		s.stale = true
		b.retryAt(ds.UID, s.historyJob.retryAt)
	} else {
		s.merging = false
	}
	// Once the hash is known the pods need not wait for the rest.
	if result.Hash != "" && !s.merging {
		s.revision, s.planned = result.Hash, ds.Generation
		b.act(s, ds)
	}
	b.sync(s)
}

// cleanUp deletes old revisions beyond the limit that no pod carries.
func (b *Book) cleanUp(s *daemonSet) {
	limit := s.latest.Spec.RevisionHistoryLimit
	if b.Guest || limit == nil || s.historyJob.busy || s.stale || s.planned != s.latest.Generation || !s.mayAct() ||
		s.cleanupJob.waits(b.now) {
		return
	}
	var old []*appsv1.ControllerRevision
	for _, r := range b.revisions.byOwner[s.latest.UID] {
		if history.HashOf(r) != s.revision {
			old = append(old, r)
		}
	}
	makes := map[string]bool{}
	for _, revision := range b.rows.Makes(s.latest.UID) {
		makes[content.TemplateOf(revision)] = true
	}
	remove := history.Cleanup(old, int(*limit), func(hash string) bool {
		return makes[hash] || b.rows.PodsOfRevision(s.latest.UID, hash) > 0
	})
	if len(remove) == 0 {
		return
	}
	s.cleanupJob.busy = true
	b.jobs = append(b.jobs, &CleanupJob{DaemonSet: s.latest, Revisions: remove})
}

func (b *Book) onCleanUp(result CleanupResult) {
	for _, r := range result.Deleted {
		b.dropRevision(r.UID)
	}
	uid := result.Job.DaemonSet.UID
	s := b.sets[uid]
	if s == nil {
		return
	}
	s.cleanupJob.finished(result.Failed, b.now)
	if result.Failed {
		b.retryAt(uid, s.cleanupJob.retryAt)
	}
}

// retryAt has the DaemonSet looked at again, at the latest then.
func (b *Book) retryAt(uid types.UID, at time.Time) {
	if have, ok := b.retries[uid]; !ok || at.Before(have) {
		b.retries[uid] = at
	}
}
