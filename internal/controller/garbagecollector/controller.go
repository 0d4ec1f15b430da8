// Package garbagecollector deletes objects whose owners are gone, and carries out
// foreground and orphaning deletion.
//
// Informers of every kind feed one graph (package graph), which decides; workers
// ask it what an object needs and write that through the metadata client.
package garbagecollector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// Resource is one kind whose objects may own or be owned.
type Resource struct {
	GVR        schema.GroupVersionResource
	GVK        schema.GroupVersionKind
	Namespaced bool
	// Prototype, such as &corev1.Pod{}, is given for kinds that the shared cache
	// holds whole anyway; their informer is used. All others are watched as metadata only.
	Prototype client.Object
}

// Informers is the part of the shared cache that the collector reads from.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Recorder tells users about references that cannot be honoured. A
// record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config says what to collect and through what.
type Config struct {
	// Resources are all served kinds that can be listed, watched and deleted. An
	// object whose owner's kind is missing here is never collected.
	Resources []Resource
	// Added tells, at the start and after each change, all kinds that were added to the
	// API while it runs. The versions of a kind follow each other, the preferred one
	// first; objects are watched in that one. Nil for none.
	Added <-chan []Resource
	// Informers is the shared cache. Required.
	Informers Informers
	// Metadata reads, deletes and patches objects. It must have no client-side rate limit. Required.
	Metadata metadata.Interface
	// Events may be nil.
	Events Recorder
	// Workers is the number of objects deleted at a time; 20 if zero.
	Workers int
	// MaxRetryDelay bounds the wait before a failed object is tried again; one minute if zero.
	MaxRetryDelay time.Duration
}

func (c *Config) complete() error {
	if c.Informers == nil || c.Metadata == nil {
		return errors.New("garbage collector: Informers and Metadata are required")
	}
	if len(c.Resources) == 0 {
		return errors.New("garbage collector: no resources to collect")
	}
	if c.Workers == 0 {
		c.Workers = 20
	}
	if c.MaxRetryDelay == 0 {
		c.MaxRetryDelay = time.Minute
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[types.UID]

// Controller is the garbage collector.
type Controller struct {
	cfg   Config
	kinds *kinds
	api   api
	added map[schema.GroupVersionResource]*monitor

	mu    sync.Mutex // held for every use of graph: one owner at a time
	graph *graph.Graph

	deletes queue
	orphans queue
}

// New checks the configuration and makes a collector that waits for Run.
func New(cfg Config) (*Controller, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Controller{cfg: cfg, kinds: newKinds(cfg.Resources), added: map[schema.GroupVersionResource]*monitor{}}
	c.api = &metadataAPI{client: cfg.Metadata, kinds: c.kinds, patience: patienceWithLists}
	c.graph = graph.New(c.kinds.scope)
	c.graph.Show(c.kinds.shown)
	newQueue := func(name string) queue {
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](5*time.Millisecond, cfg.MaxRetryDelay)
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[types.UID]{
			Name: name,
		})
	}
	c.deletes = newQueue("garbagecollector_delete")
	c.orphans = newQueue("garbagecollector_orphan")
	return c, nil
}

// Run collects until ctx ends. It acts only once every kind has been listed:
// before that, an owner that was not seen yet would look absent.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("garbagecollector")
	ctx = klog.NewContext(ctx, logger)
	defer c.deletes.ShutDown()
	defer c.orphans.ShutDown()
	var synced []toolscache.InformerSynced
	for _, r := range c.cfg.Resources {
		hasSynced, err := c.watch(ctx, r)
		if err != nil {
			return err
		}
		synced = append(synced, hasSynced)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx ended first
	}
	var workers sync.WaitGroup
	if !c.firstAdded(ctx) {
		return nil
	}
	workers.Go(func() { c.followAdded(ctx) })
	logger.Info("Collecting garbage", "kinds", c.kinds.size(), "objects", c.size())
	for range c.cfg.Workers {
		workers.Go(func() { c.work(ctx, c.deletes, c.attemptToDelete) })
	}
	for range max(1, c.cfg.Workers/4) {
		workers.Go(func() { c.work(ctx, c.orphans, c.attemptToOrphan) })
	}
	<-ctx.Done()
	c.deletes.ShutDown()
	c.orphans.ShutDown()
	workers.Wait()
	return nil
}

// watch feeds the graph with the objects of one kind.
func (c *Controller) watch(ctx context.Context, r Resource) (toolscache.InformerSynced, error) {
	prototype := r.Prototype
	if prototype == nil {
		partial := &metav1.PartialObjectMetadata{}
		partial.SetGroupVersionKind(r.GVK)
		prototype = partial
	}
	informer, err := c.cfg.Informers.GetInformer(ctx, prototype, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch %s for garbage collection: %w", r.GVR, err)
	}
	apiVersion, kind := r.GVK.GroupVersion().String(), r.GVK.Kind
	registration, err := informer.AddEventHandler(c.handler(apiVersion, kind, new(bool)))
	if err != nil {
		return nil, fmt.Errorf("watch %s for garbage collection: %w", r.GVR, err)
	}
	return registration.HasSynced, nil
}

// handler tells the graph of the objects of one kind, until over is set under mu.
func (c *Controller) handler(apiVersion, kind string, over *bool) toolscache.ResourceEventHandler {
	tell := func(obj any, change func(*graph.Graph, graph.Object)) {
		if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		accessor, err := meta.Accessor(obj)
		if err != nil {
			return // informers deliver objects with metadata only
		}
		o := graph.ObjectOf(apiVersion, kind, accessor)
		c.update(func(g *graph.Graph) {
			if !*over {
				change(g, o)
			}
		})
	}
	observe := func(g *graph.Graph, o graph.Object) { g.Observe(o) }
	remove := func(g *graph.Graph, o graph.Object) { g.Remove(o.Identity) }
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { tell(obj, observe) },
		UpdateFunc: func(before, obj any) {
			if old, err := meta.Accessor(before); err == nil {
				if now, err := meta.Accessor(obj); err == nil && old.GetUID() != now.GetUID() {
					tell(before, remove) // its name was taken over while nobody watched
				}
			}
			tell(obj, observe)
		},
		DeleteFunc: func(obj any) { tell(obj, remove) },
	}
}

// update changes the graph and hands what became ready to the workers.
func (c *Controller) update(change func(*graph.Graph)) {
	c.mu.Lock()
	change(c.graph)
	ready := c.graph.Ready()
	c.mu.Unlock()
	for _, uid := range ready.Delete {
		c.deletes.Add(uid)
	}
	for _, uid := range ready.Orphan {
		c.orphans.Add(uid)
	}
	if c.cfg.Events == nil {
		return
	}
	for _, invalid := range ready.Invalid {
		c.reportInvalid(invalid)
	}
}

func (c *Controller) reportInvalid(invalid graph.InvalidReference) {
	d, ref := invalid.Dependent, invalid.Reference
	object := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: d.APIVersion, Kind: d.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, UID: d.UID},
	}
	c.cfg.Events.Eventf(object, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
		"ownerRef [%s/%s, name: %s, uid: %s] does not exist in namespace %q", ref.APIVersion, ref.Kind, ref.Name, ref.UID,
		d.Namespace)
}

func (c *Controller) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graph.Len()
}

// Dump describes the graph for debugging, one object per line.
func (c *Controller) Dump() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.graph.Dump()
}
