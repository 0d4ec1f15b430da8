package endpointslice

import (
	"context"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/util/workqueue"
	endpointsliceutil "k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/endpointslice/plan"
)

// settle is how long news of pods gather before their Service is looked at: when
// thousands of daemons become ready, slices should not be written once for each.
const settle = 50 * time.Millisecond

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podHandler enqueues the Services that select a pod, or did before it changed.
func (s *selectors) podHandler() handler.EventHandler {
	enqueue := func(q queue, before, after any) {
		key := endpointsliceutil.GetPodUpdateProjectionKey(before, after)
		if key == nil {
			return
		}
		for name := range s.selecting(key.Namespace, key.Labels, key.OldLabels) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: key.Namespace, Name: name}}, settle)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object, nil) },
	}
}

// sameName enqueues the object of another kind that has the same name.
func sameName() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
	})
}

// sliceHandler enqueues the Service of a slice that somebody else changed.
func (s *podSlices) sliceHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if slice, ok := e.Object.(*discoveryv1.EndpointSlice); ok && s.library.ManagedByController(slice) &&
				s.tracker.ShouldSync(slice) {
				enqueueService(q, slice)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, ok1 := e.ObjectOld.(*discoveryv1.EndpointSlice)
			after, ok2 := e.ObjectNew.(*discoveryv1.EndpointSlice)
			if !ok1 || !ok2 {
				return
			}
			switch {
			case before.Labels[discoveryv1.LabelServiceName] != after.Labels[discoveryv1.LabelServiceName],
				s.library.ManagedByChanged(before, after):
				enqueueService(q, before)
				enqueueService(q, after)
			case s.library.ManagedByController(after) && s.tracker.ShouldSync(after):
				enqueueService(q, after)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			slice, ok := e.Object.(*discoveryv1.EndpointSlice)
			if ok && s.library.ManagedByController(slice) && s.tracker.Has(slice) && !s.tracker.HandleDeletion(slice) {
				enqueueService(q, slice)
			}
		},
	}
}

// mirrorHandler enqueues the Endpoints that a slice mirrors.
func mirrorHandler() handler.EventHandler {
	note := func(q queue, object client.Object) {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelManagedBy] == plan.Mirror {
			enqueueService(q, slice)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { note(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { note(q, e.ObjectOld); note(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { note(q, e.Object) },
	}
}

func enqueueService(q queue, slice *discoveryv1.EndpointSlice) {
	if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" {
		q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: slice.Namespace, Name: name}}, settle)
	}
}
