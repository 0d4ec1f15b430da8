// Package podgc deletes pods that nobody else will ever clean up: those of nodes that
// are gone, those deleted before they got a node, and terminated ones beyond a limit.
package podgc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/controller/podgc/plan"
)

// Config says what to collect and through what.
type Config struct {
	// Limits holds quarantines and the number of terminated pods kept; its zero value is the default.
	Limits plan.Config
	// Client deletes pods. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
	// Clock is the wall clock if nil.
	Clock clock.WithTicker
	// Period is how often to look without any news; 20 s if zero.
	Period time.Duration
	// Workers is the number of pods deleted at a time; 16 if zero.
	Workers int
}

// minPause bounds how often a stream of news makes all pods be looked at.
const minPause = 500 * time.Millisecond

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	c, err := newController(mgr.GetCache(), mgr.GetCache(), cfg)
	if err != nil {
		return err
	}
	return mgr.Add(c)
}

// Informers is the part of the shared cache that the controller watches through.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

type controller struct {
	cfg       Config
	informers Informers
	reader    client.Reader
	api       api
	news      chan struct{}

	mu      sync.Mutex // guards all below
	missing *plan.Missing
	nodes   map[string]struct{}
	// suspects are the pods about which there may be something to do. unsorted tells that
	// those of a node that was deleted are not among them yet.
	suspects map[types.UID]*corev1.Pod
	unsorted bool
}

func newController(informers Informers, reader client.Reader, cfg Config) (*controller, error) {
	if cfg.Client == nil {
		return nil, errors.New("pod gc: Client is required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Period == 0 {
		cfg.Period = 20 * time.Second
	}
	if cfg.Workers == 0 {
		cfg.Workers = 16
	}
	return &controller{
		cfg: cfg, informers: informers, reader: reader, api: clientAPI{cfg.Client},
		news: make(chan struct{}, 1), missing: plan.NewMissing(cfg.Limits), nodes: map[string]struct{}{},
		suspects: map[types.UID]*corev1.Pod{},
	}, nil
}

// Start sweeps until ctx ends.
func (c *controller) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("podgc"))
	synced, err := c.watch(ctx)
	if err != nil {
		return err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx ended first
	}
	wait := time.Duration(0)
	news := (<-chan struct{})(nil) // nobody listens during the pause after a sweep
	for {
		timer := c.cfg.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-news:
			timer.Stop()
			news, wait = nil, minPause
			continue
		case <-timer.C():
		}
		next, err := c.sweep(ctx)
		if err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Pods will be swept again")
			next = c.cfg.Clock.Now().Add(time.Second)
		}
		news, wait = c.news, c.cfg.Period
		if !next.IsZero() {
			wait = min(wait, max(next.Sub(c.cfg.Clock.Now()), minPause))
		}
	}
}

// exists reports whether a node does. c.mu is held.
func (c *controller) exists(node string) bool { _, ok := c.nodes[node]; return ok }

// sort takes a pod's new state in: c.mu is held.
func (c *controller) sort(p *corev1.Pod) (suspect bool) {
	if suspect = plan.Suspect(p, c.exists); suspect {
		c.suspects[p.UID] = p
	} else {
		delete(c.suspects, p.UID)
	}
	return suspect
}

// find returns who is doomed, and when to look again. All pods are looked at only after a
// node was deleted. Meanwhile no event is taken in, so what is gone by then is not kept.
func (c *controller) find(ctx context.Context) ([]plan.Doomed, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsorted {
		var pods corev1.PodList
		if err := c.reader.List(ctx, &pods); err != nil {
			return nil, time.Time{}, fmt.Errorf("list pods: %w", err)
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; plan.Suspect(p, c.exists) {
				c.sort(p.DeepCopy()) // not a part of the list, which is large
			}
		}
		c.unsorted = false
	}
	maps.DeleteFunc(c.suspects, func(_ types.UID, p *corev1.Pod) bool { return !plan.Suspect(p, c.exists) })
	doomed, next := c.missing.Sweep(slices.Collect(maps.Values(c.suspects)), c.exists, c.cfg.Clock.Now())
	return doomed, next, nil
}

// sweep deletes the doomed. It returns when to look again, zero for never.
func (c *controller) sweep(ctx context.Context) (time.Time, error) {
	doomed, next, err := c.find(ctx)
	if err != nil {
		return time.Time{}, err
	}
	gone := map[string]bool{}
	var group errgroup.Group // one failure must not keep the others
	group.SetLimit(c.cfg.Workers)
	for _, d := range doomed {
		if d.Reason == plan.NodeGone {
			// The cache may be behind: the node must be absent for the API server too.
			node := d.Pod.Spec.NodeName
			absent, asked := gone[node]
			if !asked {
				var err error
				if absent, err = c.api.NodeAbsent(ctx, node); err != nil {
					return time.Time{}, errors.Join(fmt.Errorf("read node %s: %w", node, err), group.Wait())
				}
				gone[node] = absent
			}
			if !absent {
				continue
			}
		}
		group.Go(func() error { return c.remove(ctx, d) })
	}
	return next, group.Wait()
}

// watch takes note of nodes and wakes the sweep for pods that need one.
func (c *controller) watch(ctx context.Context) ([]toolscache.InformerSynced, error) {
	sources := []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Node{}, toolscache.ResourceEventHandlerFuncs{AddFunc: c.onNode, DeleteFunc: c.onNodeDeleted}},
		{&corev1.Pod{}, toolscache.ResourceEventHandlerFuncs{AddFunc: c.onPod, UpdateFunc: func(old, obj any) {
			if was := old.(*corev1.Pod); was.UID != obj.(*corev1.Pod).UID {
				c.onPodDeleted(was) // and made again unseen
			}
			c.onPod(obj)
		}, DeleteFunc: c.onPodDeleted}},
	}
	var synced []toolscache.InformerSynced
	for _, s := range sources {
		informer, err := c.informers.GetInformer(ctx, s.object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watch %T for pod gc: %w", s.object, err)
		}
		registration, err := informer.AddEventHandler(s.handler)
		if err != nil {
			return nil, fmt.Errorf("watch %T for pod gc: %w", s.object, err)
		}
		synced = append(synced, registration.HasSynced)
	}
	return synced, nil
}

func (c *controller) onNode(obj any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[obj.(*corev1.Node).Name] = struct{}{}
}

func (c *controller) onNodeDeleted(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return
	}
	c.mu.Lock()
	delete(c.nodes, node.Name)
	c.missing.NodeDeleted(node.Name, c.cfg.Clock.Now())
	c.unsorted = true
	c.mu.Unlock()
	c.wake()
}

func (c *controller) onPod(obj any) {
	p := obj.(*corev1.Pod)
	c.mu.Lock()
	suspect := c.sort(p)
	gone := p.Spec.NodeName == "" || !c.exists(p.Spec.NodeName)
	c.mu.Unlock()
	if suspect && gone {
		c.wake()
	}
}

func (c *controller) onPodDeleted(obj any) {
	if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if p, ok := obj.(*corev1.Pod); ok {
		c.mu.Lock()
		delete(c.suspects, p.UID)
		c.mu.Unlock()
	}
}

func (c *controller) wake() {
	select {
	case c.news <- struct{}{}:
	default: // a sweep is due anyway
	}
}
