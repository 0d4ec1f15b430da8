package ownwrites

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Owners returns a handler for the owners themselves: it enqueues each one that
// changes, and forgets what was written for one that is gone or replaced.
func (l *Log[T]) Owners() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(owner client.Object, q queue) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				l.Forget(e.ObjectOld.GetUID())
			}
			add(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { l.Forget(e.Object.GetUID()) },
	}
}
