package statefulset

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/statefulset/plan"
	"github.com/everynode/everynode/internal/loop/podwriter"
	"github.com/everynode/everynode/internal/loop/slowstart"
)

// writer is everything that the controller writes, and what it must not read from
// a cache.
type writer interface {
	CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error)
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
	// PatchPod and PatchRevision send a strategic merge patch.
	PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	CreateClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error)
	// UpdateClaim fails with a conflict if the claim has changed since it was read.
	UpdateClaim(ctx context.Context, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error)
	GetSet(ctx context.Context, namespace, name string) (*appsv1.StatefulSet, error)
	// UpdateStatus fails with a conflict if the set has changed since it was read.
	UpdateStatus(ctx context.Context, set *appsv1.StatefulSet) (*appsv1.StatefulSet, error)
	GetRevision(ctx context.Context, namespace, name string) (*appsv1.ControllerRevision, error)
	CreateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error)
	UpdateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error)
	PatchRevision(ctx context.Context, namespace, name string, patch []byte) (*appsv1.ControllerRevision, error)
	DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error
}

// overtaken reports whether a write met a newer version of its object, or none.
func overtaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

// apply creates, deletes or marks pods. The first error is returned.
func (r *reconciler) apply(ctx context.Context, set *appsv1.StatefulSet, step plan.Step) error {
	defer r.pods.Begin()()
	switch {
	case len(step.Delete) > 0:
		return slowstart.Do(len(step.Delete), func(i int) error { return r.deletePod(ctx, set, step.Delete[i]) })
	case len(step.Create) > 0:
		return slowstart.Do(len(step.Create), func(i int) error { return r.createPod(ctx, set, step.Create[i]) })
	}
	return slowstart.Do(len(step.Mark), func(i int) error { return r.mark(ctx, set, step.Mark[i]) })
}

func (r *reconciler) createPod(ctx context.Context, set *appsv1.StatefulSet, p *corev1.Pod) error {
	if err := r.makeClaims(ctx, set, p.Name); err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // the namespace takes the set with it
		}
		return err
	}
	created, err := r.writer.CreatePod(ctx, p)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // the namespace takes the set with it
	}
	if err != nil {
		r.event(
			set, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %v", p.Name, set.Name,
			err,
		)
		return fmt.Errorf("create pod %s of StatefulSet %s: %w", p.Name, klog.KObj(set), err)
	}
	r.pods.Created(set.UID, created)
	klog.FromContext(ctx).V(3).Info("Created pod", "statefulSet", klog.KObj(set), "pod", klog.KObj(created))
	r.event(
		set, corev1.EventTypeNormal, "SuccessfulCreate", "create Pod %s in StatefulSet %s successful", p.Name, set.Name,
	)
	return nil
}

func (r *reconciler) deletePod(ctx context.Context, set *appsv1.StatefulSet, p *corev1.Pod) error {
	if err := r.settleClaims(ctx, set, []*corev1.Pod{p}); err != nil {
		return err
	}
	switch p.Status.Phase {
	case corev1.PodFailed:
		r.event(
			set, corev1.EventTypeWarning, "RecreatingFailedPod", "StatefulSet %s/%s is recreating failed Pod %s", set.Namespace,
			set.Name, p.Name,
		)
	case corev1.PodSucceeded:
		r.event(
			set, corev1.EventTypeNormal, "RecreatingTerminatedPod", "StatefulSet %s/%s is recreating terminated Pod %s",
			set.Namespace, set.Name, p.Name,
		)
	}
	err := r.writer.DeletePod(ctx, p.Namespace, p.Name, p.UID)
	if err != nil && !overtaken(err) {
		r.event(
			set, corev1.EventTypeWarning, "FailedDelete", "delete Pod %s in StatefulSet %s failed error: %v", p.Name, set.Name,
			err,
		)
		return fmt.Errorf("delete pod %s of StatefulSet %s: %w", p.Name, klog.KObj(set), err)
	}
	now := metav1.NewTime(r.clock.Now())
	going := *p // a copy of the struct is enough to set a field: the pod is shared
	going.DeletionTimestamp = &now
	r.pods.Deleted(set.UID, &going)
	klog.FromContext(ctx).V(3).Info("Deleted pod", "statefulSet", klog.KObj(set), "pod", klog.KObj(p))
	r.event(
		set, corev1.EventTypeNormal, "SuccessfulDelete", "delete Pod %s in StatefulSet %s successful", p.Name, set.Name,
	)
	return nil
}

// mark gives a pod the labels that say which number it has.
func (r *reconciler) mark(ctx context.Context, set *appsv1.StatefulSet, p *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "labels": plan.Marks(set, p)}})
	if err != nil {
		panic("statefulset: labels do not marshal: " + err.Error())
	}
	after, err := r.writer.PatchPod(ctx, p.Namespace, p.Name, patch)
	if overtaken(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("label pod %s of StatefulSet %s: %w", p.Name, klog.KObj(set), err)
	}
	r.pods.Updated(set.UID, after)
	return nil
}

// report writes the status. It returns the set as it is then; nil if the set has
// changed meanwhile, which brings us back.
func (r *reconciler) report(ctx context.Context, set *appsv1.StatefulSet,
	status appsv1.StatefulSetStatus) (*appsv1.StatefulSet, error) {
	next := *set // a copy of the struct is enough to set another status: the set is shared
	next.Status = status
	defer r.sets.Begin()()
	after, err := r.writer.UpdateStatus(ctx, &next)
	if overtaken(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("update the status of StatefulSet %s: %w", klog.KObj(set), err)
	}
	r.sets.Updated(set.UID, after)
	return after, nil
}

func (r *reconciler) event(set *appsv1.StatefulSet, kind, reason, format string, args ...any) {
	if r.events != nil {
		r.events.Eventf(set, kind, reason, format, args...)
	}
}

// clientWriter is the writer over client-go.
type clientWriter struct{ podwriter.Writer }

// GetSet implements writer.
func (w clientWriter) GetSet(ctx context.Context, namespace, name string) (*appsv1.StatefulSet, error) {
	return w.Client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// UpdateStatus implements writer.
func (w clientWriter) UpdateStatus(ctx context.Context, set *appsv1.StatefulSet) (*appsv1.StatefulSet, error) {
	return w.Client.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
}

// GetRevision implements writer.
func (w clientWriter) GetRevision(ctx context.Context, namespace, name string) (*appsv1.ControllerRevision, error) {
	return w.Client.AppsV1().ControllerRevisions(namespace).Get(ctx, name, metav1.GetOptions{})
}

// CreateRevision implements writer.
func (w clientWriter) CreateRevision(ctx context.Context,
	r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	return w.Client.AppsV1().ControllerRevisions(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
}

// UpdateRevision implements writer.
func (w clientWriter) UpdateRevision(ctx context.Context,
	r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	return w.Client.AppsV1().ControllerRevisions(r.Namespace).Update(ctx, r, metav1.UpdateOptions{})
}

// PatchRevision implements writer.
func (w clientWriter) PatchRevision(ctx context.Context, namespace, name string,
	patch []byte) (*appsv1.ControllerRevision, error) {
	return w.Client.AppsV1().ControllerRevisions(namespace).Patch(
		ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
	)
}

// DeleteRevision implements writer.
func (w clientWriter) DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error {
	return w.Client.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(r.UID)),
	})
}
