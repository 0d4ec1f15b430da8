package replicaset

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/claim"
	"github.com/everynode/everynode/internal/pod"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podHandler enqueues the sets that a pod concerns.
func (r *reconciler) podHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if before.UID != after.UID {
				r.wrote.Gone(before.UID)
			}
			if !r.matters(before, after) {
				return
			}
			if old, owned := r.setOf(before); owned {
				q.Add(reconcile.Request{NamespacedName: old})
			}
			r.enqueue(ctx, q, after)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.wrote.Gone(e.Object.GetUID())
			if set, owned := r.setOf(e.Object); owned {
				q.Add(reconcile.Request{NamespacedName: set})
			}
		},
	}
}

// enqueue adds the set that controls a pod, or those that would take it.
func (r *reconciler) enqueue(ctx context.Context, q queue, p client.Object) {
	if set, owned := r.setOf(p); owned {
		q.Add(reconcile.Request{NamespacedName: set})
		return
	}
	if metav1.GetControllerOfNoCopy(p) != nil || p.GetDeletionTimestamp() != nil || len(p.GetLabels()) == 0 {
		return
	}
	sets, err := r.kind.list(ctx, r.reader, client.InNamespace(p.GetNamespace()))
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Could not list sets", "kind", r.kind.gvk.Kind, "namespace", p.GetNamespace())
		return
	}
	for _, s := range sets {
		if claim.Selects(s.Spec.Selector, p) {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: s.Name}})
		}
	}
}

// setOf names the set that controls a pod, if one does.
func (r *reconciler) setOf(p metav1.Object) (types.NamespacedName, bool) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != r.kind.gvk.Kind {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.GetNamespace(), Name: ref.Name}, true
}

// matters says whether a pod changed in what sets depend on.
func (r *reconciler) matters(before, after *corev1.Pod) bool {
	a, _ := r.setOf(before)
	b, _ := r.setOf(after)
	return before.UID != after.UID || a != b ||
		(metav1.GetControllerOfNoCopy(before) == nil) != (metav1.GetControllerOfNoCopy(after) == nil) ||
		pod.IsReady(before) != pod.IsReady(after) ||
		pod.IsTerminal(before) != pod.IsTerminal(after) ||
		pod.IsTerminating(before) != pod.IsTerminating(after) ||
		!maps.Equal(before.Labels, after.Labels)
}
