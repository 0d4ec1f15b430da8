package statefulset

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/statefulset/plan"
	"github.com/everynode/everynode/internal/objects/claim"
)

// versions are the revisions that pods are made from.
type versions struct {
	update, current plan.Revision
	old             []*appsv1.ControllerRevision
}

// settleRevisions sees to it that a revision holds the set's template. It returns nil
// if the set has changed meanwhile, which brings us back.
func (r *reconciler) settleRevisions(ctx context.Context, set *appsv1.StatefulSet) (*versions, error) {
	owned, err := r.claimRevisions(ctx, set)
	if err != nil {
		return nil, err
	}
	p, err := history.Compute(history.Input{Owner: history.OfStatefulSet(set), Revisions: owned, Normalize: r.normalize})
	if err != nil {
		return nil, fmt.Errorf("compute the revisions of StatefulSet %s: %w", klog.KObj(set), err)
	}
	update := p.Current
	defer r.revisions.Begin()()
	switch {
	case p.Create != nil && set.DeletionTimestamp != nil:
		return nil, nil
	case p.Create != nil:
		if update, err = r.createRevision(ctx, set, p.Create); err != nil || update == nil {
			return nil, err
		}
	case p.Renumber > 0:
		next := update.DeepCopy()
		next.Revision = p.Renumber
		if update, err = r.writer.UpdateRevision(ctx, next); err != nil {
			return nil, fmt.Errorf("renumber revision %s: %w", klog.KObj(next), err)
		}
		r.revisions.Updated(set.UID, update)
	}
	out := &versions{old: append(slices.Clone(p.Old), p.Duplicates...)}
	out.update = plan.Revision{Name: update.Name, Template: &set.Spec.Template}
	out.current = out.update
	for _, old := range out.old {
		if old.Name != set.Status.CurrentRevision {
			continue
		}
		template, err := history.Template(old)
		if err != nil {
			return nil, err
		}
		out.current = plan.Revision{Name: old.Name, Template: template}
	}
	return out, nil
}

// claimRevisions lists the revisions of a set; those that have lost their owner and
// match its selector are taken.
func (r *reconciler) claimRevisions(ctx context.Context,
	set *appsv1.StatefulSet) ([]*appsv1.ControllerRevision, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of StatefulSet %s: %w", klog.KObj(set), err)
	}
	list := func(owner string) (out []*appsv1.ControllerRevision, _ error) {
		var l appsv1.ControllerRevisionList
		if err := r.reader.List(ctx, &l, client.InNamespace(set.Namespace),
			client.MatchingFields{ownerIndex: owner}); err != nil {
			return nil, fmt.Errorf("list the revisions of %s in namespace %s: %w", owner, set.Namespace, err)
		}
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
		return out, nil
	}
	cached, err := list(string(set.UID))
	if err != nil {
		return nil, err
	}
	nobodys, err := list(claim.Nobody)
	if err != nil {
		return nil, err
	}
	defer r.revisions.Begin()()
	return claim.Settle(claim.Owner[*appsv1.ControllerRevision]{
		Object: set, Kind: controllerKind, Selector: selector,
		Live: func() (metav1.Object, error) { return r.writer.GetSet(ctx, set.Namespace, set.Name) },
		Patch: func(c *appsv1.ControllerRevision, patch []byte) (*appsv1.ControllerRevision, error) {
			return r.writer.PatchRevision(ctx, c.Namespace, c.Name, patch)
		},
		Adopted: func(c *appsv1.ControllerRevision) { r.revisions.Created(set.UID, c) },
	}, append(r.revisions.Overlay(set.UID, cached), nobodys...))
}

// createRevision makes a revision. If its name is taken by something else, the set
// gets another number for its hash, and nil is returned.
func (r *reconciler) createRevision(ctx context.Context, set *appsv1.StatefulSet,
	c *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	created, err := r.writer.CreateRevision(ctx, c)
	switch {
	case err == nil:
		r.revisions.Created(set.UID, created)
		return created, nil
	case !apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("create revision %s: %w", klog.KObj(c), err)
	}
	live, err := r.writer.GetRevision(ctx, c.Namespace, c.Name)
	if err != nil {
		return nil, fmt.Errorf("read revision %s, which has the name of a new one: %w", klog.KObj(c), err)
	}
	if metav1.IsControlledBy(live, set) && history.Holds(live, &set.Spec.Template, c.Data.Raw, r.normalize) {
		r.revisions.Created(set.UID, live)
		return live, nil
	}
	status := *set.Status.DeepCopy()
	status.CollisionCount = ptr.To(ptr.Deref(status.CollisionCount, 0) + 1)
	_, err = r.report(ctx, set, status)
	return nil, err
}

// cleanUp deletes old revisions that no pod has, as many as are more than are kept.
func (r *reconciler) cleanUp(ctx context.Context, set *appsv1.StatefulSet, pods []*corev1.Pod, v *versions) error {
	if set.DeletionTimestamp != nil {
		return nil
	}
	live := func(hash string) bool {
		name := history.Name(set.Name, hash)
		return name == v.current.Name || name == v.update.Name || slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			return p.Labels[appsv1.ControllerRevisionHashLabelKey] == name
		})
	}
	defer r.revisions.Begin()()
	for _, old := range history.Cleanup(v.old, int(ptr.Deref(set.Spec.RevisionHistoryLimit, 10)), live) {
		if err := r.writer.DeleteRevision(ctx, old); err != nil && !overtaken(err) {
			return fmt.Errorf("delete revision %s: %w", klog.KObj(old), err)
		}
		going := *old // a copy of the struct is enough to set a field: the revision is shared
		going.DeletionTimestamp = ptr.To(metav1.NewTime(r.clock.Now()))
		r.revisions.Deleted(set.UID, &going)
	}
	return nil
}
