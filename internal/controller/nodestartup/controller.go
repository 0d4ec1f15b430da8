// Package nodestartup leads nodes that start from group to group of their NodeStartup, and opens them once their
// daemons are available. Package plan decides.
package nodestartup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
)

// EventSource is the component name that the recorder should carry.
const EventSource = "node-startup-controller"

// Informers is the part of the shared cache that the controller watches through.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Startups reads and writes NodeStartups.
type Startups interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*v1alpha1.NodeStartup, error)
	UpdateStatus(ctx context.Context, s *v1alpha1.NodeStartup, o metav1.UpdateOptions) (*v1alpha1.NodeStartup, error)
}

// GateWriter changes the taints of nodes that start.
type GateWriter interface {
	// SetGate gives this very node another gate in place of the one that was seen, nil for none, and writes down the
	// daemons that it went on without. It is refused with Conflict if the node's gate is another by now.
	SetGate(ctx context.Context, node *corev1.Node, seen, gate *corev1.Taint, without []string) error
}

// Placements knows by which rules a node gets a daemon, or gets none. Under a RolloutPolicy these are not always those
// of the present template.
type Placements interface {
	// RulesOn returns them; nil for those of the present template. Known is false while that is not decided.
	RulesOn(ctx context.Context, ds *appsv1.DaemonSet, node string) (rules *placement.Rules, known bool)
}

// Config says through what to work. Startups and Gates are required.
type Config struct {
	Startups Startups
	Gates    GateWriter
	// Placements is that of the DaemonSet controller of this process; nil if there is none.
	Placements Placements
	// Setting is where it works. Marker is required but at home, where it is nil.
	Setting plan.Setting
	Marker  Marker
	// Events may be nil.
	Events Recorder
	// Clock is the wall clock if nil.
	Clock clock.WithTicker
	// Workers is the number of nodes looked at at a time; 64 if zero. What a worker does is mostly to wait for a write,
	// and many nodes start in the same moment: with 8 of them gates waited for workers longer than for their writes.
	Workers int
	// Registerer gets the controller's metrics; nil for none.
	Registerer prometheus.Registerer
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	c, err := New(mgr.GetCache(), cfg)
	if err != nil {
		return err
	}
	return mgr.Add(c)
}

// New returns the controller, for who runs it only while it leads.
func New(objects cache.Cache, cfg Config) (manager.Runnable, error) {
	return newController(objects, objects, cfg)
}

type controller struct {
	cfg       Config
	informers Informers
	reader    client.Reader
	metrics   *metrics
	queue     workqueue.TypedRateLimitingInterface[string]
	// news tells that statuses may have changed.
	news chan struct{}

	mu sync.Mutex // guards all below
	// starting are the nodes that start, with what was last decided of them.
	starting map[string]*starting
	// startups are the names of the NodeStartups that there are. While there are none, no pod is noted down.
	startups map[string]bool
	// pods are those of DaemonSets, by node.
	pods map[string]map[types.NamespacedName]struct{}
	// arrivals are what was seen to come, once watches is true: what there was before has been told of then.
	arrivals plan.Arrivals
	watches  bool
}

// starting is a node that starts.
type starting struct {
	startup string // the name of the NodeStartup that it follows
	waits   []plan.Wait
	late    bool
	// told is the taint's value for which people were told that it is late.
	told string
	// ahead are the daemons' pods whose readiness is of a clock that is ahead.
	ahead plan.Ahead
}

func newController(informers Informers, reader client.Reader, cfg Config) (*controller, error) {
	if cfg.Startups == nil || cfg.Gates == nil || (cfg.Marker == nil) != (cfg.Setting == plan.Home) {
		return nil, errors.New("node startup: Startups and Gates are required, and away from home a Marker")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Workers == 0 {
		cfg.Workers = 64
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register node startup metrics: %w", err)
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](20*time.Millisecond, 5*time.Second)
	return &controller{
		cfg: cfg, informers: informers, reader: reader, metrics: m, news: make(chan struct{}, 1),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "nodestartup", Clock: cfg.Clock}),
		starting: map[string]*starting{}, startups: map[string]bool{},
		pods: map[string]map[types.NamespacedName]struct{}{},
	}, nil
}

// Start works until ctx ends.
func (c *controller) Start(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("nodestartup"))
	defer c.queue.ShutDown()
	synced, err := c.watch(ctx)
	if err != nil {
		return err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil // ctx ended first
	}
	c.mu.Lock()
	c.watches = true
	c.mu.Unlock()
	var workers sync.WaitGroup
	for range c.cfg.Workers {
		workers.Go(func() { c.work(ctx) })
	}
	c.keepStatuses(ctx)
	c.queue.ShutDown()
	workers.Wait()
	return nil
}

func (c *controller) work(ctx context.Context) {
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		again, err := c.look(ctx, name)
		switch {
		case err != nil && ctx.Err() == nil:
			utilruntime.HandleErrorWithContext(ctx, err, "The node's start will be looked at again", "node", name)
			c.queue.AddRateLimited(name)
		case !again.IsZero():
			c.queue.Forget(name)
			c.queue.AddAfter(name, max(again.Sub(c.cfg.Clock.Now()), 0))
		default:
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// statusPause is how long statuses rest between two looks at them.
const statusPause = time.Second

// keepStatuses writes statuses until ctx ends.
func (c *controller) keepStatuses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.news:
		}
		err := c.writeStatuses(ctx)
		if err != nil && ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "The statuses of NodeStartups will be written again")
			c.tell()
		}
		timer := c.cfg.Clock.NewTimer(statusPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// tell says that statuses may have changed.
func (c *controller) tell() {
	select {
	case c.news <- struct{}{}:
	default: // they are looked at anyway
	}
}
