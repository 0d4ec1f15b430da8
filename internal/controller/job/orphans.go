package job

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// orphans lets go pods whose Job is gone: nobody else will, and with the finalizer
// they could never be deleted.
type orphans struct {
	reader client.Reader
	writer writer
}

func isTracked(p metav1.Object) bool {
	return slices.Contains(p.GetFinalizers(), batchv1.JobTrackingFinalizer)
}

func (o *orphans) podHandler() handler.EventHandler {
	add := func(ctx context.Context, p client.Object, q queue) {
		if isTracked(p) && o.lost(ctx, p) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
	}
}

func (o *orphans) jobHandler() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
		pods, err := ownedPods(ctx, o.reader, e.Object.GetNamespace(), string(e.Object.GetUID()))
		if err != nil {
			utilruntime.HandleErrorWithContext(
				ctx, err, "Could not list the pods of a Job that is gone", "job", klog.KObj(e.Object),
			)
			return
		}
		for _, p := range pods {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}}
}

// lost reports whether a pod has no Job, as far as the cache knows.
func (o *orphans) lost(ctx context.Context, p client.Object) bool {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil {
		return true
	}
	key, owned := jobOf(p)
	if !owned {
		return false // another kind's
	}
	var j batchv1.Job
	err := o.reader.Get(ctx, key, &j)
	return apierrors.IsNotFound(err) || err == nil && j.UID != ref.UID
}

// Reconcile implements reconcile.Reconciler.
func (o *orphans) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var p corev1.Pod
	if err := o.reader.Get(ctx, key.NamespacedName, &p); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !isTracked(&p) || !o.lost(ctx, &p) {
		return ctrl.Result{}, nil
	}
	if ref := metav1.GetControllerOfNoCopy(&p); ref != nil {
		live, err := o.writer.GetJob(ctx, p.Namespace, ref.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("look whether Job %s/%s is gone: %w", p.Namespace, ref.Name, err)
		}
		if err == nil && live.UID == ref.UID {
			return ctrl.Result{}, nil // the cache of Jobs is behind
		}
	}
	// In exactly this version: a Job may just be taking the pod.
	_, err := o.writer.PatchPod(ctx, p.Namespace, p.Name, letGoPatch(&p, p.ResourceVersion))
	if err != nil && !overtaken(err) {
		return ctrl.Result{}, fmt.Errorf("let go pod %s, whose Job is gone: %w", key, err)
	}
	klog.FromContext(ctx).V(3).Info("Let go pod whose Job is gone", "pod", klog.KObj(&p))
	return ctrl.Result{}, nil
}
