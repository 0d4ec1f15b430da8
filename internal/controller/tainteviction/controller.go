// Package tainteviction deletes pods from nodes with NoExecute taints that they do not
// tolerate, or no longer. Package plan says which and when.
package tainteviction

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/controller/tainteviction/plan"
)

// Informers is the part of the shared cache that the controller watches through.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config says through what to evict.
type Config struct {
	// Client deletes pods. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.WithTicker
	// Workers is the number of pods evicted at a time; 8 if zero.
	Workers int
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	c, err := newController(mgr.GetCache(), cfg)
	if err != nil {
		return err
	}
	return mgr.Add(c)
}

type controller struct {
	cfg       Config
	informers Informers
	api       api

	mu      sync.Mutex // held for every use of planner
	planner *plan.Planner

	queue workqueue.TypedRateLimitingInterface[types.UID]
	wake  chan struct{}
}

func newController(informers Informers, cfg Config) (*controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("taint eviction: Client is required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Workers == 0 {
		cfg.Workers = 8
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](20*time.Millisecond, 10*time.Second)
	return &controller{
		cfg:       cfg,
		informers: informers,
		api:       clientAPI{cfg.Client},
		planner:   plan.New(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "tainteviction", Clock: cfg.Clock}),
		wake: make(chan struct{}, 1),
	}, nil
}

// Start watches and evicts until ctx ends.
func (c *controller) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("tainteviction"))
	defer c.queue.ShutDown()
	synced, err := c.watch(ctx)
	if err != nil {
		return err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx ended first
	}
	var workers sync.WaitGroup
	for range c.cfg.Workers {
		workers.Go(func() { c.work(ctx) })
	}
	c.run(ctx)
	c.queue.ShutDown()
	workers.Wait()
	return nil
}

// run asks the planner what to do at every news and at every deadline.
func (c *controller) run(ctx context.Context) {
	timer := c.cfg.Clock.NewTimer(0)
	defer func() { timer.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C():
		}
		now := c.cfg.Clock.Now()
		c.mu.Lock()
		ready := c.planner.Ready(now)
		next, scheduled := c.planner.NextTick()
		c.mu.Unlock()
		for _, p := range ready.Cancelled {
			c.event(p, "Cancelling deletion of Pod %s", p.NamespacedName)
		}
		for _, p := range ready.Evict {
			c.queue.Add(p.UID)
		}
		timer.Stop()
		if scheduled {
			timer = c.cfg.Clock.NewTimer(max(next.Sub(now), 0))
		}
	}
}

func (c *controller) work(ctx context.Context) {
	for {
		uid, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		c.mu.Lock()
		p, due := c.planner.Due(uid)
		c.mu.Unlock()
		var err error
		if due {
			err = c.evict(ctx, p)
		}
		if err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Eviction will be tried again", "pod", p.NamespacedName)
			c.queue.AddRateLimited(uid)
		} else {
			c.queue.Forget(uid)
		}
		c.queue.Done(uid)
	}
}

// change updates what is known and wakes run if a deadline may have moved.
func (c *controller) change(do func(now time.Time)) {
	now := c.cfg.Clock.Now()
	c.mu.Lock()
	before, _ := c.planner.NextTick()
	do(now)
	after, scheduled := c.planner.NextTick()
	news := c.planner.Pending(now) || (scheduled && !after.Equal(before))
	c.mu.Unlock()
	if !news {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default: // run will look anyway
	}
}

// watch feeds the planner from the informers of nodes and pods. Handlers only translate.
func (c *controller) watch(ctx context.Context) ([]toolscache.InformerSynced, error) {
	sources := []struct {
		object   client.Object
		observe  func(obj any, now time.Time)
		onDelete func(obj any)
	}{
		{&corev1.Node{}, c.observeNode, c.deleteNode},
		{&corev1.Pod{}, c.observePod, c.deletePod},
	}
	var synced []toolscache.InformerSynced
	for _, s := range sources {
		informer, err := c.informers.GetInformer(ctx, s.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T for taint eviction: %w", s.object, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { c.change(func(now time.Time) { s.observe(obj, now) }) },
			UpdateFunc: func(old, obj any) {
				c.change(func(now time.Time) {
					if old.(client.Object).GetUID() != obj.(client.Object).GetUID() {
						s.onDelete(old) // deleted and made again unseen
					}
					s.observe(obj, now)
				})
			},
			DeleteFunc: func(obj any) {
				if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
					obj = unknown.Obj
				}
				c.change(func(time.Time) { s.onDelete(obj) })
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watch %T for taint eviction: %w", s.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

func (c *controller) observeNode(obj any, now time.Time) {
	node := obj.(*corev1.Node)
	c.planner.UpdateNode(node.Name, node.Spec.Taints, now)
}

func (c *controller) deleteNode(obj any) {
	if node, ok := obj.(*corev1.Node); ok {
		c.planner.DeleteNode(node.Name)
	}
}

func (c *controller) observePod(obj any, now time.Time) {
	p := obj.(*corev1.Pod)
	if p.DeletionTimestamp != nil || p.Spec.NodeName == "" {
		c.planner.DeletePod(p.UID)
		return
	}
	c.planner.UpdatePod(plan.Pod{
		NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Name},
		UID:            p.UID,
		Node:           p.Spec.NodeName,
		Tolerations:    p.Spec.Tolerations,
	}, now)
}

func (c *controller) deletePod(obj any) {
	if p, ok := obj.(*corev1.Pod); ok {
		c.planner.DeletePod(p.UID)
	}
}
