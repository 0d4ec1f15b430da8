package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/objects/claim"
)

// revisionWriter carries one job out.
type revisionWriter struct {
	*Executor
	job    *belongings.RevisionJob
	result belongings.RevisionResult
	// fresh has the newest version of what the job already changed.
	fresh map[types.UID]*appsv1.ControllerRevision
}

// ApplyRevisions does what a job says about revisions, as far as it gets: what was not written is tried again.
func (e *Executor) ApplyRevisions(ctx context.Context, job *belongings.RevisionJob) belongings.RevisionResult {
	w := &revisionWriter{
		Executor: e,
		job:      job,
		result:   belongings.RevisionResult{Job: job},
		fresh:    map[types.UID]*appsv1.ControllerRevision{},
	}
	steps := []func(context.Context) error{w.claim, w.label, w.current, w.mergeDuplicates}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			w.Metrics.WritesFailed.Inc()
			klog.FromContext(ctx).Info("Cannot write revisions, will try again", "daemonSet", klog.KObj(job.DaemonSet),
				"err", err)
			w.result.Failed = true
			break
		}
	}
	for _, r := range w.fresh {
		w.result.Written = append(w.result.Written, r)
	}
	return w.result
}

// CleanUp deletes old revisions.
func (e *Executor) CleanUp(ctx context.Context, job *belongings.CleanupJob) belongings.CleanupResult {
	deleted, err := e.deleteRevisions(ctx, job.Revisions)
	if err != nil {
		e.Metrics.WritesFailed.Inc()
		klog.FromContext(ctx).Info("Cannot delete old revisions, will try again", "daemonSet",
			klog.KObj(job.DaemonSet), "err", err)
	}
	return belongings.CleanupResult{Job: job, Deleted: deleted, Failed: err != nil}
}

func (w *revisionWriter) claim(ctx context.Context) error {
	if len(w.job.Adopt) > 0 {
		if err := w.mayAdopt(ctx, w.job.DaemonSet); err != nil {
			return err
		}
	}
	for _, r := range w.job.Adopt {
		updated, err := w.adopt(ctx, r)
		if err != nil {
			return fmt.Errorf("adopt revision %s: %w", r.Name, err)
		}
		w.fresh[updated.UID] = updated
	}
	for _, r := range w.job.Release {
		updated, err := w.Writer.PatchRevision(ctx, r.Namespace, r.Name, claim.ReleasePatch(w.job.DaemonSet, r))
		switch {
		case err == nil:
			w.fresh[updated.UID] = updated
		case !vanished(err):
			return fmt.Errorf("release revision %s: %w", r.Name, err)
		}
	}
	return nil
}

// newest returns a copy of the revision to change.
func (w *revisionWriter) newest(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	if f := w.fresh[r.UID]; f != nil {
		r = f
	}
	return r.DeepCopy()
}

func (w *revisionWriter) update(ctx context.Context, r *appsv1.ControllerRevision) error {
	updated, err := w.Writer.UpdateRevision(ctx, r)
	if err != nil {
		return fmt.Errorf("update revision %s: %w", r.Name, err)
	}
	w.fresh[updated.UID] = updated
	return nil
}

func (w *revisionWriter) label(ctx context.Context) error {
	for _, r := range w.job.Plan.Label {
		next := w.newest(r)
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		next.Labels[appsv1.ControllerRevisionHashLabelKey] = next.Name
		if err := w.update(ctx, next); err != nil {
			return err
		}
	}
	return nil
}

// current makes sure that the current revision exists and has the highest number.
func (w *revisionWriter) current(ctx context.Context) error {
	plan := &w.job.Plan
	switch {
	case plan.Create != nil:
		return w.create(ctx, plan.Create)
	case plan.Current == nil:
		return nil
	}
	w.result.Hash = history.HashOf(plan.Current)
	if plan.Renumber == 0 {
		return nil
	}
	next := w.newest(plan.Current)
	next.Revision = plan.Renumber
	return w.update(ctx, next)
}

func (w *revisionWriter) create(ctx context.Context, r *appsv1.ControllerRevision) error {
	created, err := w.Writer.CreateRevision(ctx, r)
	if apierrors.IsAlreadyExists(err) {
		created, err = w.existing(ctx, r, err)
	}
	if err != nil {
		return fmt.Errorf("create revision %s: %w", r.Name, err)
	}
	w.fresh[created.UID] = created
	w.result.Hash = history.HashOf(created)
	if created.Revision >= r.Revision {
		return nil
	}
	// It was there, unknown to us, with a number from before.
	next := created.DeepCopy()
	next.Revision = r.Revision
	return w.update(ctx, next)
}

// existing looks at the revision whose name is taken. If it holds another
// template, two templates have the same hash, and if another DaemonSet has adopted
// it, it will not be ours: the DaemonSet's collision count
// goes up, and the next try has another hash.
func (w *revisionWriter) existing(
	ctx context.Context, r *appsv1.ControllerRevision, taken error) (*appsv1.ControllerRevision, error,
) {
	have, err := w.Writer.GetRevision(ctx, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	ds := w.job.DaemonSet
	ref := metav1.GetControllerOfNoCopy(have)
	if another := ref != nil &&
		ref.Name != ds.Name; !another && history.Holds(have, &ds.Spec.Template, r.Data.Raw, w.Normalize) {
		return w.heirOf(ctx, have)
	}
	live, err := w.Writer.GetDaemonSet(ctx, ds.Namespace, ds.Name)
	if err != nil {
		return nil, err
	}
	if live.UID != ds.UID || collisions(live) != collisions(ds) {
		return nil, fmt.Errorf("the DaemonSet changed meanwhile: %w", taken)
	}
	next := live.DeepCopy()
	count := collisions(live) + 1
	next.Status.CollisionCount = &count
	w.result.DaemonSet, err = w.Writer.UpdateDaemonSetStatus(ctx, next)
	if err != nil {
		w.result.DaemonSet = nil
		return nil, fmt.Errorf("raise the collision count: %w", err)
	}
	return nil, taken
}

// errHeir says that a revision is not ours yet.
var errHeir = errors.New("it still belongs to a DaemonSet that had the name before")

// heirOf makes a revision of our template ours. Another owner's goes with its
// owner; until then its hash, which will be ours too, is all we take.
func (w *revisionWriter) heirOf(
	ctx context.Context, have *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error,
) {
	ref := metav1.GetControllerOfNoCopy(have)
	switch {
	case have.DeletionTimestamp != nil, ref != nil && ref.UID != w.job.DaemonSet.UID:
		w.result.Hash = history.HashOf(have)
		return nil, errHeir
	case ref != nil:
		return have, nil
	}
	if err := w.mayAdopt(ctx, w.job.DaemonSet); err != nil {
		return nil, err
	}
	return w.adopt(ctx, have)
}

func (w *revisionWriter) adopt(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	return w.Writer.PatchRevision(ctx, r.Namespace, r.Name, claim.AdoptPatch(w.job.DaemonSet, belongings.Kind, r))
}

func collisions(ds *appsv1.DaemonSet) int32 {
	if ds.Status.CollisionCount == nil {
		return 0
	}
	return *ds.Status.CollisionCount
}

// mergeDuplicates gives the pods of duplicate revisions the current hash and
// deletes the duplicates.
func (w *revisionWriter) mergeDuplicates(ctx context.Context) error {
	for _, p := range w.job.Relabel {
		updated, err := w.Writer.PatchPod(ctx, p.Namespace, p.Name, labelPatch(w.result.Hash))
		switch {
		case err == nil:
			w.result.Pods = append(w.result.Pods, updated)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("relabel pod %s: %w", p.Name, err)
		}
	}
	deleted, err := w.deleteRevisions(ctx, w.job.Plan.Duplicates)
	for _, r := range deleted {
		delete(w.fresh, r.UID)
	}
	w.result.Deleted = deleted
	return err
}

// deleteRevisions deletes these versions of revisions: one that became current
// meanwhile stays. It returns how far it got.
func (e *Executor) deleteRevisions(
	ctx context.Context, revisions []*appsv1.ControllerRevision) (deleted []*appsv1.ControllerRevision, err error,
) {
	for _, r := range revisions {
		err := e.Writer.DeleteRevision(ctx, r)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			deleted = append(deleted, r)
		case !apierrors.IsConflict(err):
			return deleted, fmt.Errorf("delete revision %s: %w", r.Name, err)
		}
	}
	return deleted, nil
}

// labelPatch sets the label that says which revision an object belongs to.
func labelPatch(hash string) []byte {
	return mustJSON(map[string]any{"metadata": map[string]any{
		"labels": map[string]string{appsv1.ControllerRevisionHashLabelKey: hash},
	}})
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("executor: a plain map does not marshal: " + err.Error())
	}
	return b
}
