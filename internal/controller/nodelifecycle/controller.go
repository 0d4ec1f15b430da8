// Package nodelifecycle watches over the nodes' signs of life. It tells the cluster of
// nodes that fell silent or are unwell: conditions, taints, and pods that are not ready.
//
// Package health decides; informers feed it and workers write what it plans.
package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/controller/nodelifecycle/health"
)

// Informers is the part of the shared cache that the controller watches through.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config says how to judge nodes and through what to write.
type Config struct {
	// Health holds grace periods and eviction rates; its zero value is the default.
	Health health.Config
	// Writer writes about nodes and pods. Required.
	Writer Writer
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.WithTicker
	// Workers is the number of nodes written about at a time; 8 if zero.
	Workers int
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	c, err := newController(mgr.GetCache(), mgr.GetCache(), cfg)
	if err != nil {
		return err
	}
	return mgr.Add(c)
}

type controller struct {
	cfg       Config
	informers Informers
	reader    client.Reader
	writer    Writer

	mu      sync.Mutex // held for every use of tracker and pods
	tracker *health.Tracker
	pods    map[string]map[types.NamespacedName]struct{} // by node

	queue workqueue.TypedRateLimitingInterface[string]
	wake  chan struct{}
}

func newController(informers Informers, reader client.Reader, cfg Config) (*controller, error) {
	if cfg.Writer == nil {
		return nil, errors.New("node lifecycle: Writer is required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Workers == 0 {
		cfg.Workers = 8
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 10*time.Second)
	return &controller{
		cfg:       cfg,
		informers: informers,
		reader:    reader,
		writer:    cfg.Writer,
		tracker:   health.New(cfg.Health),
		pods:      map[string]map[types.NamespacedName]struct{}{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "nodelifecycle", Clock: cfg.Clock}),
		wake: make(chan struct{}, 1),
	}, nil
}

// Start watches and writes until ctx ends. Every node gets a full grace period from here on.
func (c *controller) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("nodelifecycle"))
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

// run asks the tracker what to do at every news and at every deadline.
func (c *controller) run(ctx context.Context) {
	timer := c.cfg.Clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C():
		}
		now := c.cfg.Clock.Now()
		c.mu.Lock()
		c.tracker.Tick(now)
		names := c.tracker.Ready(now)
		next, scheduled := c.tracker.NextTick()
		c.mu.Unlock()
		for _, name := range names {
			c.queue.Add(name)
		}
		timer.Stop()
		if scheduled {
			// Deadlines that lie close together share one look.
			timer = c.cfg.Clock.NewTimer(max(next.Sub(now), 100*time.Millisecond))
		}
	}
}

func (c *controller) work(ctx context.Context) {
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		err := c.sync(ctx, name)
		switch {
		case err == nil || ctx.Err() != nil:
			c.queue.Forget(name)
		case apierrors.IsConflict(err):
			c.queue.AddRateLimited(name) // the node changed; the plan is made again
		default:
			utilruntime.HandleErrorWithContext(ctx, err, "Node health will be written again", "node", name)
			c.queue.AddRateLimited(name)
		}
		c.queue.Done(name)
	}
}

func (c *controller) sync(ctx context.Context, name string) error {
	now := c.cfg.Clock.Now()
	c.mu.Lock()
	plan, ok := c.tracker.Plan(name, now)
	c.mu.Unlock()
	if !ok || plan.Empty() {
		return nil
	}
	if err := c.writeNode(ctx, plan); err != nil {
		if apierrors.IsNotFound(err) {
			return nil // its deletion is on the way to the tracker
		}
		return fmt.Errorf("update node %s: %w", name, err)
	}
	if !plan.MarkPods {
		return nil
	}
	for _, key := range c.podsOf(name) {
		if err := c.markPod(ctx, key, now); err != nil {
			return fmt.Errorf("mark pod %s of silent node %s not ready: %w", key, name, err)
		}
	}
	c.mu.Lock()
	c.tracker.PodsMarked(name)
	c.mu.Unlock()
	return nil
}

func (c *controller) podsOf(node string) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(c.pods[node]))
	for key := range c.pods[node] {
		keys = append(keys, key)
	}
	return keys
}

// change updates what is known and wakes run if there is something new to decide.
func (c *controller) change(do func()) {
	c.mu.Lock()
	do()
	pending := c.tracker.Pending()
	c.mu.Unlock()
	if !pending {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default: // run will look anyway
	}
}

// watch feeds the tracker from the informers of nodes, leases and pods.
func (c *controller) watch(ctx context.Context) ([]toolscache.InformerSynced, error) {
	started := c.cfg.Clock.Now()
	sources := []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Node{}, c.nodeHandler(started)},
		{&coordinationv1.Lease{}, c.leaseHandler()},
		{&corev1.Pod{}, c.podHandler()},
	}
	var synced []toolscache.InformerSynced
	for _, s := range sources {
		informer, err := c.informers.GetInformer(ctx, s.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T for node health: %w", s.object, err)
		}
		registration, err := informer.AddEventHandler(s.handler)
		if err != nil {
			return nil, fmt.Errorf("watch %T for node health: %w", s.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}
