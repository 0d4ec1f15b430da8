package job

import (
	"context"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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

// together is how long news of pods is collected: pods of a Job often end at about
// the same time, and each turn writes the status.
const together = 100 * time.Millisecond

// jobHandler enqueues the Job that changed, and forgets one that is gone.
func (r *reconciler) jobHandler() handler.EventHandler {
	add := func(j client.Object, q queue) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(j)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.forget(e.ObjectOld.GetUID())
			}
			add(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { r.forget(e.Object.GetUID()) },
	}
}

// podHandler enqueues the Jobs that a pod concerns.
func (r *reconciler) podHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if before.UID != after.UID {
				r.pods.Gone(before.UID)
			}
			if !matters(before, after) {
				return
			}
			if old, owned := jobOf(before); owned {
				q.AddAfter(reconcile.Request{NamespacedName: old}, together)
			}
			r.enqueue(ctx, q, after)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.pods.Gone(e.Object.GetUID())
			if j, owned := jobOf(e.Object); owned {
				q.AddAfter(reconcile.Request{NamespacedName: j}, together)
			}
		},
	}
}

// enqueue adds the Job that controls a pod, or those that would take it.
func (r *reconciler) enqueue(ctx context.Context, q queue, p client.Object) {
	if j, owned := jobOf(p); owned {
		q.AddAfter(reconcile.Request{NamespacedName: j}, together)
		return
	}
	if metav1.GetControllerOfNoCopy(p) != nil || p.GetDeletionTimestamp() != nil || len(p.GetLabels()) == 0 {
		return
	}
	var jobs batchv1.JobList
	if err := r.reader.List(ctx, &jobs, client.InNamespace(p.GetNamespace())); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Could not list Jobs", "namespace", p.GetNamespace())
		return
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if claim.Selects(j.Spec.Selector, p) {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: j.Namespace, Name: j.Name}})
		}
	}
}

// jobOf names the Job that controls a pod, if one does.
func jobOf(p metav1.Object) (types.NamespacedName, bool) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != controllerKind.Kind || ref.APIVersion != controllerKind.GroupVersion().String() {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.GetNamespace(), Name: ref.Name}, true
}

// matters says whether a pod changed in what Jobs depend on.
func matters(before, after *corev1.Pod) bool {
	return before.UID != after.UID || claim.Key(before) != claim.Key(after) ||
		before.Status.Phase != after.Status.Phase ||
		pod.IsReady(before) != pod.IsReady(after) ||
		pod.IsTerminating(before) != pod.IsTerminating(after) ||
		pod.Restarts(before) != pod.Restarts(after) ||
		!slices.Equal(before.Finalizers, after.Finalizers) ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}
