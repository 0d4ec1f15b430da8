package simulator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/simulator/illness"
)

// SimulatedLabel marks a simulated node, with the value "true".
const SimulatedLabel = "everynode.io/simulated"

// Informers is where pods and nodes are read; a controller-runtime cache is one.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...crcache.InformerGetOption) (crcache.Informer, error)
}

// Config says what is simulated. Zero fields take the defaults.
type Config struct {
	// Nodes is how many nodes there are at the start. They are named NamePrefix and a number from 0001.
	Nodes int
	// NamePrefix defaults to "sim-".
	NamePrefix string
	// Informers and Writer are required; NewWriter makes a Writer from a client.
	Informers Informers
	Writer    Writer
	// Events, unless nil, records what the nodes tell about containers, under the name "kubelet" as the recorder has it. A
	// pod makes three or more, which is much with thousands of pods.
	Events record.EventRecorder
	// OnlyWarnings keeps the events of what went well to itself.
	OnlyWarnings bool
	// Faults says which nodes and pods are ill; nil for none but those that annotations name.
	Faults *illness.Plan
	// Clock defaults to the machine's.
	Clock clock.WithTicker
	// Version is shown as the nodes' kubelet version.
	Version string
	// Labels and Taints are put on new nodes, beside the usual labels.
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity of each node; by default 8 CPUs, 32 GiB of memory, 100 GiB of storage and 110 pods.
	Capacity corev1.ResourceList
	// Secrets reads one that a pod refers to, so that a bad content in it makes the pod ill. Without it, as in every
	// cluster, simulated nodes have no right on Secrets, and read none.
	Secrets func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Images says how an image behaves, by default as DefaultImages does.
	Images func(image string) Image
	// LeaseDuration is how long a node counts as alive after a heartbeat, default 40 s, and Heartbeat how often it gives
	// one, default 20 s: with thousands of nodes heartbeats are most of what an idle cluster does.
	LeaseDuration, Heartbeat time.Duration
	// PodWorkers and NodeWorkers bound the writes under way, default 32 and 16; half as many as the latter again are kept
	// for heartbeats.
	PodWorkers, NodeWorkers int
}

// Image is how containers of an image behave.
type Image struct {
	// PullError, unless empty, is why the image cannot be pulled. Its containers never start.
	PullError string
	// StartDelay is how long a pull takes.
	StartDelay time.Duration
}

func (c *Config) complete() error {
	var errs []error
	if c.Informers == nil {
		errs = append(errs, errors.New("informers are required"))
	}
	if c.Writer == nil {
		errs = append(errs, errors.New("a writer is required"))
	}
	if c.Nodes < 0 {
		errs = append(errs, fmt.Errorf("the number of nodes must not be negative, is %d", c.Nodes))
	}
	if c.NamePrefix == "" {
		c.NamePrefix = "sim-"
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Version == "" {
		c.Version = "v0.0.0"
	}
	if c.Capacity == nil {
		c.Capacity = corev1.ResourceList{
			corev1.ResourceCPU:              resource.MustParse("8"),
			corev1.ResourceMemory:           resource.MustParse("32Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
			corev1.ResourcePods:             resource.MustParse("110"),
		}
	}
	if c.Images == nil {
		c.Images = DefaultImages
	}
	setDefault(&c.LeaseDuration, 40*time.Second)
	setDefault(&c.Heartbeat, 20*time.Second)
	setDefault(&c.PodWorkers, 32)
	setDefault(&c.NodeWorkers, 16)
	return errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Simulator runs the nodes. Call New.
type Simulator struct {
	config Config
	nodes  *nodes
	pods   *pods
}

// New returns a simulator that does nothing before Run.
func New(config Config) (*Simulator, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("simulator config: %w", err)
	}
	s := &Simulator{config: config, nodes: newNodes(&config)}
	s.pods = newPods(&config, s.nodes)
	s.nodes.revisit = s.pods.revisit
	for i := range config.Nodes {
		s.nodes.start(s.nodeName(i+1), s.firstHeartbeat(i))
	}
	return s, nil
}

func (s *Simulator) nodeName(number int) string {
	return fmt.Sprintf("%s%04d", s.config.NamePrefix, number)
}

// firstHeartbeat spreads the nodes' heartbeats evenly over the time between two of one node.
func (s *Simulator) firstHeartbeat(i int) time.Duration {
	return s.config.Heartbeat * time.Duration(i+1) / time.Duration(s.config.Nodes)
}

// Run simulates until ctx ends. It returns nil then, or an error when it could not start.
func (s *Simulator) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithName("simulator")
	ctx = klog.NewContext(ctx, logger)
	defer s.nodes.shutDown()
	defer s.pods.queue.ShutDown()
	if err := s.watch(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	logger.V(1).Info("Simulating nodes", "nodes", s.config.Nodes)
	var workers sync.WaitGroup
	for range s.config.NodeWorkers {
		workers.Go(func() { s.nodes.work(ctx, s.nodes.queue) })
	}
	for range (s.config.NodeWorkers + 1) / 2 {
		workers.Go(func() { s.nodes.work(ctx, s.nodes.beats) })
	}
	for range s.config.PodWorkers {
		workers.Go(func() { s.pods.work(ctx) })
	}
	<-ctx.Done()
	s.nodes.shutDown()
	s.pods.queue.ShutDown()
	workers.Wait()
	return nil
}

// watch follows nodes first: which pods are ours depends on them.
func (s *Simulator) watch(ctx context.Context) error {
	for _, source := range []struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}{
		{&corev1.Node{}, s.nodes.handler()},
		{&corev1.Pod{}, s.pods.handler()},
	} {
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

// StopNode makes a node fall silent, as if its machine had lost power: no heartbeats, and nothing happens to its pods.
func (s *Simulator) StopNode(name string) { s.nodes.stop(name) }

// StartNode starts a node that was stopped or deleted, or adds a new one. What happened to its pods meanwhile is made
// up for.
func (s *Simulator) StartNode(name string) {
	s.nodes.start(name, s.config.Heartbeat)
	s.pods.revisit(name)
}
