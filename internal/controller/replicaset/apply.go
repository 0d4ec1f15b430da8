package replicaset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/controller/replicaset/plan"
	"github.com/everynode/everynode/internal/loop/slowstart"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// writer is everything that the controller writes, and what it must not read from
// a cache.
type writer interface {
	CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
	// PatchPod sends a strategic merge patch.
	PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	GetSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error)
	// UpdateStatus fails with a conflict if the set has changed since it was read.
	UpdateStatus(ctx context.Context, set *appsv1.ReplicaSet) error
}

// apply creates and deletes pods. All is tried; the first error is returned.
func (r *reconciler) apply(ctx context.Context, set *appsv1.ReplicaSet, change plan.Change) error {
	defer r.wrote.Begin()()
	switch {
	case change.Create > 0:
		return slowstart.Do(change.Create, func(int) error { return r.createPod(ctx, set) })
	case len(change.Delete) > 0:
		return slowstart.Together(len(change.Delete), func(i int) error { return r.deletePod(ctx, set, change.Delete[i]) })
	}
	return nil
}

func (r *reconciler) createPod(ctx context.Context, set *appsv1.ReplicaSet) error {
	p := podtemplate.Pod(
		&set.Spec.Template, set.Namespace, podtemplate.NamePrefix(set.Name), *metav1.NewControllerRef(set, r.kind.gvk),
	)
	created, err := r.writer.CreatePod(ctx, p)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the namespace takes the set with it
	}
	if err != nil {
		r.event(set, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		return fmt.Errorf("create a pod of %s %s: %w", r.kind.gvk.Kind, klog.KObj(set), err)
	}
	r.wrote.Created(set.UID, created)
	klog.FromContext(ctx).V(3).Info("Created pod", r.kind.key, klog.KObj(set), "pod", klog.KObj(created))
	r.event(set, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", created.Name)
	return nil
}

func (r *reconciler) deletePod(ctx context.Context, set *appsv1.ReplicaSet, p *corev1.Pod) error {
	err := r.writer.DeletePod(ctx, p.Namespace, p.Name, p.UID)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, and the cache will know
	}
	if err != nil {
		r.event(set, corev1.EventTypeWarning, "FailedDelete", "Error deleting: %v", err)
		return fmt.Errorf("delete pod %s of %s %s: %w", klog.KObj(p), r.kind.gvk.Kind, klog.KObj(set), err)
	}
	going := *p
	going.DeletionTimestamp = ptr.To(metav1.NewTime(r.clock.Now()))
	r.wrote.Deleted(set.UID, &going)
	klog.FromContext(ctx).V(3).Info("Deleted pod", r.kind.key, klog.KObj(set), "pod", klog.KObj(p))
	r.event(set, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", p.Name)
	return nil
}

// report writes the status, if it is news.
func (r *reconciler) report(ctx context.Context, set *appsv1.ReplicaSet, report plan.Report) error {
	if !report.Changed {
		return nil
	}
	// A copy of the struct is enough to set another status: the set is shared.
	next := *set
	next.Status = report.Status
	err := r.writer.UpdateStatus(ctx, &next)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the change that was faster brings us back
	}
	if err != nil {
		return fmt.Errorf("update the status of %s %s: %w", r.kind.gvk.Kind, klog.KObj(set), err)
	}
	return nil
}

func (r *reconciler) event(set *appsv1.ReplicaSet, kind, reason, format string, args ...any) {
	if r.events != nil {
		r.events.Eventf(r.kind.original(set), kind, reason, format, args...)
	}
}
