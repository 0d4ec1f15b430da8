package deployment

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/deployment/plan"
	"github.com/everynode/everynode/internal/objects/claim"
	"github.com/everynode/everynode/internal/objects/pod"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// setHandler enqueues the Deployments that a ReplicaSet concerns.
func (r *reconciler) setHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.wrote.Gone(e.ObjectOld.GetUID())
			}
			addOwner(q, e.ObjectOld)
			r.enqueue(ctx, q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.wrote.Gone(e.Object.GetUID())
			addOwner(q, e.Object)
		},
	}
}

// podHandler enqueues Deployments that wait for their old pods to end.
func (r *reconciler) podHandler() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if before.UID != after.UID || pod.IsTerminal(before) != pod.IsTerminal(after) {
				r.podEnded(ctx, q, before)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.podEnded(ctx, q, e.Object) },
	}
}

func (r *reconciler) podEnded(ctx context.Context, q queue, p client.Object) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return
	}
	var set appsv1.ReplicaSet
	if err := r.reader.Get(ctx, client.ObjectKey{Namespace: p.GetNamespace(), Name: ref.Name}, &set); err == nil {
		addOwner(q, &set)
	}
}

// addOwner enqueues the Deployment that controls an object, and reports whether
// anything does.
func addOwner(q queue, object client.Object) bool {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref != nil && ref.Kind == plan.Kind.Kind {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: ref.Name}})
	}
	return ref != nil
}

// enqueue adds the Deployment that controls a set, or those that would take it.
func (r *reconciler) enqueue(ctx context.Context, q queue, set client.Object) {
	if addOwner(q, set) || set.GetDeletionTimestamp() != nil || len(set.GetLabels()) == 0 {
		return
	}
	var deployments appsv1.DeploymentList
	if err := r.reader.List(ctx, &deployments, client.InNamespace(set.GetNamespace())); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Could not list Deployments", "namespace", set.GetNamespace())
		return
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if claim.Selects(d.Spec.Selector, set) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		}
	}
}
