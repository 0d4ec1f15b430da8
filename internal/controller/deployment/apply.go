package deployment

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/controller/deployment/plan"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

// writer is everything that the controller writes, and what it must not read from
// a cache.
type writer interface {
	GetDeployment(ctx context.Context, namespace, name string) (*appsv1.Deployment, error)
	// UpdateStatus writes status and annotations. Like the other updates it fails with
	// a conflict if the object has changed since it was read.
	UpdateStatus(ctx context.Context, d *appsv1.Deployment) error
	GetSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error)
	CreateSet(ctx context.Context, s *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error)
	UpdateSet(ctx context.Context, s *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error)
	// PatchSet sends a strategic merge patch.
	PatchSet(ctx context.Context, namespace, name string, patch []byte) (*appsv1.ReplicaSet, error)
	// DeleteSet deletes the set in exactly this version.
	DeleteSet(ctx context.Context, s *appsv1.ReplicaSet) error
}

// apply does what was decided. It reports whether it came to the end: if something
// has changed meanwhile, that change brings us back.
func (r *reconciler) apply(ctx context.Context, in plan.Input, p plan.Plan) (bool, error) {
	defer r.wrote.Begin()()
	if p.Create != nil {
		if done, err := r.createSet(ctx, in, p.Create); err != nil || !done {
			return false, err
		}
	}
	for _, u := range p.Update {
		if done, err := r.updateSet(ctx, in.Deployment, u); err != nil || !done {
			return false, err
		}
	}
	for _, s := range p.Delete {
		err := r.writer.DeleteSet(ctx, s)
		if overtaken(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("delete ReplicaSet %s of an earlier template: %w", klog.KObj(s), err)
		}
		going := *s
		going.DeletionTimestamp = ptr.To(metav1.NewTime(in.Now))
		r.wrote.Deleted(in.Deployment.UID, &going)
		klog.FromContext(ctx).V(3).Info(
			"Deleted ReplicaSet", "deployment", klog.KObj(in.Deployment), "replicaSet", klog.KObj(s),
		)
	}
	if !p.Changed {
		return true, nil
	}
	return r.report(ctx, in.Deployment, p.Status, p.Revision)
}

// overtaken reports whether a write met a newer version of its object, or none.
func overtaken(err error) bool { return apierrors.IsConflict(err) || apierrors.IsNotFound(err) }

func (r *reconciler) createSet(ctx context.Context, in plan.Input, s *appsv1.ReplicaSet) (bool, error) {
	d := in.Deployment
	created, err := r.writer.CreateSet(ctx, s)
	switch {
	case apierrors.IsAlreadyExists(err):
		return false, r.settleName(ctx, in, s)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil // the namespace takes the Deployment with it
	case err != nil:
		r.event(d, corev1.EventTypeWarning, "ReplicaSetCreateError", "Failed to create new replica set %q: %v", s.Name, err)
		err = fmt.Errorf("create ReplicaSet %s: %w", klog.KObj(s), err)
		if _, statusErr := r.report(ctx, d, plan.NotCreated(in, s.Name, err), ""); statusErr != nil {
			return false, fmt.Errorf("%w, and say so: %w", err, statusErr)
		}
		return false, err
	}
	r.wrote.Created(d.UID, created)
	klog.FromContext(ctx).V(3).Info(
		"Created ReplicaSet", "deployment", klog.KObj(d), "replicaSet", klog.KObj(s), "replicas", *s.Spec.Replicas,
	)
	r.tellScaled(d, s, 0)
	return true, nil
}

// settleName looks at the object that has the name of the new set. If it is not
// the set that we made without the cache knowing, the next try takes another name.
func (r *reconciler) settleName(ctx context.Context, in plan.Input, s *appsv1.ReplicaSet) error {
	d := in.Deployment
	live, err := r.writer.GetSet(ctx, s.Namespace, s.Name)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("create ReplicaSet %s: its name was taken and is free again", klog.KObj(s))
	}
	if err != nil {
		return fmt.Errorf("read ReplicaSet %s, which has the name of a new one: %w", klog.KObj(s), err)
	}
	if metav1.IsControlledBy(live, d) && podtemplate.Same(&live.Spec.Template, &d.Spec.Template) {
		r.wrote.Created(d.UID, live)
		return fmt.Errorf("create ReplicaSet %s: it is there already", klog.KObj(s))
	}
	klog.FromContext(ctx).V(2).Info(
		"The name of a new ReplicaSet is taken", "deployment", klog.KObj(d), "replicaSet", klog.KObj(s),
	)
	_, err = r.report(ctx, d, plan.Collided(in), "")
	return err
}

func (r *reconciler) updateSet(ctx context.Context, d *appsv1.Deployment, u plan.Update) (bool, error) {
	updated, err := r.writer.UpdateSet(ctx, u.Set)
	if overtaken(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("update ReplicaSet %s: %w", klog.KObj(u.Set), err)
	}
	r.wrote.Updated(d.UID, updated)
	klog.FromContext(ctx).V(3).Info(
		"Updated ReplicaSet",
		"deployment", klog.KObj(d), "replicaSet", klog.KObj(u.Set), "replicas", *u.Set.Spec.Replicas, "reason", u.Reason,
	)
	r.tellScaled(d, u.Set, ptr.Deref(u.Before.Spec.Replicas, 1))
	return true, nil
}

func (r *reconciler) tellScaled(d *appsv1.Deployment, s *appsv1.ReplicaSet, from int32) {
	switch to := *s.Spec.Replicas; {
	case to > from:
		r.event(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from %d to %d", s.Name, from, to)
	case to < from:
		r.event(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled down replica set %s from %d to %d", s.Name, from, to)
	}
}

// report writes the status, and the number of the template if it is known.
func (r *reconciler) report(ctx context.Context, d *appsv1.Deployment, status appsv1.DeploymentStatus,
	revision string) (bool, error) {
	// A copy of the struct is enough to set another status: the Deployment is shared.
	next := *d
	next.Status = status
	if revision != "" && d.Annotations[plan.RevisionAnnotation] != revision {
		next.Annotations = maps.Clone(d.Annotations)
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[plan.RevisionAnnotation] = revision
	}
	err := r.writer.UpdateStatus(ctx, &next)
	if overtaken(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("update the status of Deployment %s: %w", klog.KObj(d), err)
	}
	return true, nil
}

func (r *reconciler) event(d *appsv1.Deployment, kind, reason, format string, args ...any) {
	if r.events != nil {
		r.events.Eventf(d, kind, reason, format, args...)
	}
}

// clientWriter is the writer over client-go.
type clientWriter struct{ client kubernetes.Interface }

// GetDeployment implements writer.
func (w clientWriter) GetDeployment(ctx context.Context, namespace, name string) (*appsv1.Deployment, error) {
	return w.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
}

// UpdateStatus implements writer.
func (w clientWriter) UpdateStatus(ctx context.Context, d *appsv1.Deployment) error {
	_, err := w.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

// GetSet implements writer.
func (w clientWriter) GetSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return w.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
}

// CreateSet implements writer.
func (w clientWriter) CreateSet(ctx context.Context, s *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return w.client.AppsV1().ReplicaSets(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
}

// UpdateSet implements writer.
func (w clientWriter) UpdateSet(ctx context.Context, s *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return w.client.AppsV1().ReplicaSets(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
}

// PatchSet implements writer.
func (w clientWriter) PatchSet(ctx context.Context, namespace, name string, patch []byte) (*appsv1.ReplicaSet, error) {
	return w.client.AppsV1().ReplicaSets(namespace).Patch(
		ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
	)
}

// DeleteSet implements writer.
func (w clientWriter) DeleteSet(ctx context.Context, s *appsv1.ReplicaSet) error {
	return w.client.AppsV1().ReplicaSets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	})
}
