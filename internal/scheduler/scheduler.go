package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/scheduler/queue"
)

// Name is the schedulerName of the pods that are scheduled and the source of the events.
const Name = corev1.DefaultSchedulerName

// Informers is where the scheduler reads namespaces, nodes, pods, disruption budgets, volumes and claims; a
// controller-runtime cache is one.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...crcache.InformerGetOption) (crcache.Informer, error)
}

// Config says what a Scheduler works with.
type Config struct {
	// Informers is required. Its objects are shared and never changed here.
	Informers Informers
	// Writer is required; NewWriter makes one from a client.
	Writer Writer
	// Events records events; required. NewEventSink makes one from a client.
	Events EventSink
	// ToCome returns the daemons for which a node keeps room, as pods that exist nowhere: no pod of the same or a lower
	// priority is placed where it would take that. It is called by one goroutine; nil for none.
	ToCome func(*fit.Node) []*fit.Pod
	// Clock defaults to the machine's.
	Clock clock.WithTicker
	// Workers is how many writes run at once, default 24. They wait for the API server, they do not compute.
	Workers int
	// Seed decides between nodes that are equally good.
	Seed uint64
	// Queue sets the delays of retries.
	Queue queue.Config
	// Registerer takes the metrics; nil keeps them to itself.
	Registerer prometheus.Registerer
}

// Validate reports what is missing.
func (c *Config) Validate() error {
	var errs []error
	if c.Informers == nil {
		errs = append(errs, errors.New("informers are required"))
	}
	if c.Writer == nil {
		errs = append(errs, errors.New("a writer is required"))
	}
	if c.Events == nil {
		errs = append(errs, errors.New("an event sink is required"))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers must not be negative, is %d", c.Workers))
	}
	return errors.Join(errs...)
}

// Scheduler schedules pods while it runs. Call New.
type Scheduler struct {
	config Config
	inbox  *inbox
	binder *binder
	events *recorder
	loop   *loop
	// atWork says that room can be asked for; silentUntil is until when nobody does, in nanoseconds since 1970.
	atWork      atomic.Bool
	silentUntil atomic.Int64
}

// New returns a scheduler that does nothing before Run.
func New(config Config) (*Scheduler, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("scheduler config: %w", err)
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Workers == 0 {
		config.Workers = 24
	}
	metrics, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register the scheduler's metrics: %w", err)
	}
	s := &Scheduler{config: config, inbox: newInbox(), events: newRecorder(config.Events, config.Clock)}
	s.binder = newBinder(config.Writer, s.events, s.inbox, config.Clock, metrics)
	s.loop = newLoop(config, s.inbox, s.binder, s.events)
	return s, nil
}

// Run schedules until ctx ends. It returns nil then, or an error when it could not start.
func (s *Scheduler) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("scheduler")
	ctx = klog.NewContext(ctx, logger)
	if err := s.watch(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.loop.follow = s.followDevices(ctx)
	logger.V(1).Info("Scheduling", "workers", s.config.Workers)
	var workers sync.WaitGroup
	workers.Go(func() { s.events.run(ctx) })
	for range s.config.Workers {
		workers.Go(func() { s.binder.work(ctx) })
	}
	s.atWork.Store(true)
	s.loop.run(ctx)
	s.atWork.Store(false)
	s.binder.stop()
	s.events.stop()
	workers.Wait()
	return nil
}

// watch feeds the inbox and returns once everything that exists is in it.
func (s *Scheduler) watch(ctx context.Context) error {
	return s.feed(ctx, []source{
		{&corev1.Namespace{}, handler(s.inbox, kindNamespace)},
		{&corev1.Node{}, handler(s.inbox, kindNode)},
		{&corev1.Pod{}, handler(s.inbox, kindPod)},
		{&policyv1.PodDisruptionBudget{}, handler(s.inbox, kindBudget)},
		{&storagev1.StorageClass{}, handler(s.inbox, kindClass)},
		{&corev1.PersistentVolume{}, handler(s.inbox, kindVolume)},
		{&corev1.PersistentVolumeClaim{}, handler(s.inbox, kindClaim)},
	})
}

// source is objects that are watched, and who is told of them.
type source struct {
	object  client.Object
	handler toolscache.ResourceEventHandler
}

// feed returns once everything that exists was told.
func (s *Scheduler) feed(ctx context.Context, sources []source) error {
	for _, source := range sources {
		informer, err := s.config.Informers.GetInformer(ctx, source.object)
		if err != nil {
			return fmt.Errorf("get informer of %T: %w", source.object, err)
		}
		registration, err := informer.AddEventHandler(source.handler)
		if err != nil {
			return fmt.Errorf("watch %T: %w", source.object, err)
		}
		go func() {
			<-ctx.Done()
			// The informer may be stopped already; then there is nothing to take back.
			_ = informer.RemoveEventHandler(registration)
		}()
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return fmt.Errorf("wait for %T to be read: %w", source.object, ctx.Err())
		}
	}
	return nil
}
