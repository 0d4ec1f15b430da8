package ownwrites

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Owners returns a handler for the owners themselves: it enqueues each one that
// changes, and forgets what was written for one that is gone or replaced. also is
// told of these too, by their UID.
func (l *Log[T]) Owners(also ...func(types.UID)) handler.EventHandler {
	add := func(owner client.Object, q queue) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(owner)})
	}
	forget := func(owner types.UID) {
		l.Forget(owner)
		for _, f := range also {
			f(owner)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				forget(e.ObjectOld.GetUID())
			}
			add(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { forget(e.Object.GetUID()) },
	}
}

// Owned says how the owners of objects are found, and what they want to know.
type Owned[T client.Object] struct {
	// Owner names the one that controls an object; false if it is none of these owners.
	Owner func(object metav1.Object) (types.NamespacedName, bool)
	// Takers names those that would take an object that nobody controls.
	Takers func(ctx context.Context, object client.Object) ([]types.NamespacedName, error)
	// Matters says whether an object changed in what owners depend on.
	Matters func(before, after T) bool
	// Together is how long news for an owner is collected; 0 for not at all.
	Together time.Duration
}

// Handler returns a handler for what the owners own: it enqueues those that a change
// concerns, and notes what is gone.
func (o Owned[T]) Handler(l *Log[T]) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { o.enqueue(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(T), e.ObjectNew.(T)
			if before.GetUID() != after.GetUID() {
				l.Gone(before.GetUID())
			}
			if o.Matters(before, after) {
				o.addOwner(q, before)
				o.enqueue(ctx, q, after)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			l.Gone(e.Object.GetUID())
			o.addOwner(q, e.Object)
		},
	}
}

// addOwner enqueues the owner that controls an object, and says whether there is one.
func (o Owned[T]) addOwner(q queue, object client.Object) bool {
	owner, owned := o.Owner(object)
	switch {
	case owned && o.Together > 0:
		q.AddAfter(reconcile.Request{NamespacedName: owner}, o.Together)
	case owned:
		q.Add(reconcile.Request{NamespacedName: owner})
	}
	return owned
}

// enqueue adds the owner that controls an object, or those that would take it.
func (o Owned[T]) enqueue(ctx context.Context, q queue, object client.Object) {
	if o.addOwner(q, object) ||
		metav1.GetControllerOfNoCopy(object) != nil || object.GetDeletionTimestamp() != nil || len(object.GetLabels()) == 0 {
		return
	}
	takers, err := o.Takers(ctx, object)
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Could not look who would take an object that nobody controls",
			"namespace", object.GetNamespace())
		return
	}
	for _, taker := range takers {
		q.Add(reconcile.Request{NamespacedName: taker})
	}
}
