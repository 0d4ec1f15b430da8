package faults

import (
	"context"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Informers is where control loops watch; a controller-runtime cache is one.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// View gives a control loop informers whose events come as the line lets them:
// late, held up, and with those of different objects in another order.
type View struct {
	Informers
	Line *Line
	// Context ends with the loop.
	Context context.Context //nolint:containedctx // Handlers have none; it is the loop's.
	// Delivered, unless nil, is told of each object just before the loop is; of one that is gone with a
	// toolscache.DeletedFinalStateUnknown around it.
	Delivered func(obj any)
}

// GetInformer returns an informer whose handlers get their events so.
func (v *View) GetInformer(ctx context.Context, obj client.Object,
	opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := v.Informers.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	return informer{i, v}, nil
}

type informer struct {
	cache.Informer
	view *View
}

func (i informer) AddEventHandler(
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(i.view.mix(h))
}

func (i informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler,
	resync time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(i.view.mix(h), resync)
}

func (i informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler,
	options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(i.view.mix(h), options)
}

func (v *View) mix(h toolscache.ResourceEventHandler) *mixer {
	m := &mixer{view: v, next: h}
	m.arrived = sync.NewCond(&m.mu)
	context.AfterFunc(v.Context, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.arrived.Broadcast()
	})
	go m.run()
	return m
}

// delivery is one event of one object.
type delivery struct {
	key     string
	object  any
	deliver func()
}

// mixer hands events over one at a time. Those of one object keep their order.
type mixer struct {
	view *View
	next toolscache.ResourceEventHandler

	mu      sync.Mutex
	arrived *sync.Cond
	queue   []delivery
}

// OnAdd implements toolscache.ResourceEventHandler. The first list is handed
// over at once: who asks whether all is read is told by the informer.
func (m *mixer) OnAdd(obj any, first bool) {
	if first {
		if m.view.Line.gate.Wait(m.view.Context) == nil {
			m.tell(obj)
			m.next.OnAdd(obj, first)
		}
		return
	}
	m.put(obj, func() { m.next.OnAdd(obj, false) })
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (m *mixer) OnUpdate(old, obj any) {
	m.put(obj, func() { m.next.OnUpdate(old, obj) })
}

// OnDelete implements toolscache.ResourceEventHandler.
func (m *mixer) OnDelete(obj any) {
	gone, missed := obj.(toolscache.DeletedFinalStateUnknown)
	if !missed {
		key, _ := toolscache.MetaNamespaceKeyFunc(obj) // what has no name keeps its place among all others
		gone = toolscache.DeletedFinalStateUnknown{Key: key, Obj: obj}
	}
	m.put(gone, func() { m.next.OnDelete(obj) })
}

func (m *mixer) tell(obj any) {
	if m.view.Delivered != nil {
		m.view.Delivered(obj)
	}
}

func (m *mixer) put(obj any, deliver func()) {
	key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		key = "" // keeps its place among all others without a name
	}
	m.mu.Lock()
	m.queue = append(m.queue, delivery{key, obj, deliver})
	m.mu.Unlock()
	m.arrived.Signal()
}

func (m *mixer) run() {
	ctx := m.view.Context
	for {
		m.mu.Lock()
		for len(m.queue) == 0 && ctx.Err() == nil {
			m.arrived.Wait()
		}
		m.mu.Unlock()
		if m.view.Line.gate.Wait(ctx) != nil {
			return
		}
		if m.view.Line.slow.Load() && sleep(ctx, time.Duration(m.view.Line.roll(50))*time.Millisecond) != nil {
			return
		}
		d := m.take()
		m.tell(d.object)
		d.deliver()
	}
}

// take removes an event that may come next: the first of all, or while the line
// is slow the first of any object.
func (m *mixer) take() delivery {
	at := 0
	if m.view.Line.slow.Load() {
		m.mu.Lock()
		firsts, seen := []int{}, map[string]bool{}
		for i, d := range m.queue {
			if !seen[d.key] {
				seen[d.key] = true
				firsts = append(firsts, i)
			}
		}
		m.mu.Unlock()
		at = firsts[m.view.Line.roll(len(firsts))]
		if at > 0 {
			m.view.Line.done.Add(1)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.queue[at]
	m.queue = append(m.queue[:at:at], m.queue[at+1:]...)
	return d
}
