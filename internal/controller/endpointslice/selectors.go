package endpointslice

import (
	"context"
	"iter"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// selectors are those of all Services, since pods change by the thousand and each of their events asks for them. Each
// controller has its own: it takes a selector in before it looks after the Service, and then sees all pods whose events
// came too early for that selector.
type selectors struct {
	mu sync.RWMutex
	// of is by namespace and name.
	of map[string]map[string]labels.Selector
}

func newSelectors() *selectors { return &selectors{of: map[string]map[string]labels.Selector{}} }

// serviceHandler takes in what Services select, and enqueues them.
func (s *selectors) serviceHandler() handler.EventHandler {
	enqueue := func(q queue, object client.Object) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { s.set(e.Object); enqueue(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { s.set(e.ObjectNew); enqueue(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { s.forget(e.Object); enqueue(q, e.Object) },
	}
}

func (s *selectors) set(object client.Object) {
	svc, ok := object.(*corev1.Service)
	switch {
	case !ok:
		return
	case svc.Spec.Selector == nil:
		s.forget(svc)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[svc.Namespace] == nil {
		s.of[svc.Namespace] = map[string]labels.Selector{}
	}
	s.of[svc.Namespace][svc.Name] = labels.SelectorFromSet(svc.Spec.Selector)
}

func (s *selectors) forget(object client.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	services := s.of[object.GetNamespace()]
	delete(services, object.GetName())
	if len(services) == 0 {
		delete(s.of, object.GetNamespace())
	}
}

// selecting yields the names of the Services of a namespace that select a pod of one of two sets of labels, of which
// the second may be nil for none.
func (s *selectors) selecting(namespace string, now, before labels.Set) iter.Seq[string] {
	return func(yield func(string) bool) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		for name, selector := range s.of[namespace] {
			if (selector.Matches(now) || before != nil && selector.Matches(before)) && !yield(name) {
				return
			}
		}
	}
}
