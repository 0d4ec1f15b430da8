package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/network/proxy/changes"
	"github.com/everynode/everynode/internal/network/proxy/nftables"
	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

const (
	// settle is how long news gather before rules are written; in addition, rules are
	// written for at most one part in restful of the time: a Service with thousands of
	// endpoints that come and go must not cost every node a processor.
	settle  = 50 * time.Millisecond
	restful = 5
	// checkEvery is how often it is looked whether somebody else changed the rules, or what the kernel was set to.
	checkEvery = time.Minute
	// retryAfter is how long to wait after rules could not be written.
	retryAfter = 2 * time.Second
)

// Config says what a node's Services are made of.
type Config struct {
	// NodeName is the node that this process runs on. Required.
	NodeName string
	// Services, EndpointSlices and Nodes are caches that somebody else runs; that of the
	// nodes needs only this one. Required.
	Services, EndpointSlices, Nodes cache.SharedIndexInformer
	// ServiceNetwork is the network that addresses of Services are from. Packets to addresses in it that no Service has
	// are dropped, if it is the cluster's; the default is to let them go.
	ServiceNetwork netip.Prefix
	// Known is what the node knew in an earlier run; nil for nothing.
	Known *Known
	// HealthAddress is where load balancers ask for the node's health, MetricsAddress
	// where the metrics are; both HOST:PORT, and empty for nowhere.
	HealthAddress, MetricsAddress string
	// Clock is the wall clock if nil.
	Clock clock.WithTicker
}

// packetFilter is what this package changes on the machine; nftables.Filter is one.
type packetFilter interface {
	Change(ctx context.Context, d ruleset.Delta) error
	Replace(ctx context.Context, node ruleset.Node, whole ruleset.Table) error
	Intact(ctx context.Context) (bool, error)
	Prepare() error
	Empty(ctx context.Context) (bool, error)
	Forget(flows []ruleset.Flow) (uint, error)
}

// Proxy keeps the rules of a node.
type Proxy struct {
	config Config
	filter packetFilter
	checks *healthChecks
	// progress and metrics are what is told of the proxy.
	progress *progress
	metrics  *metrics

	mu      sync.Mutex
	tracker *changes.Tracker
	node    ruleset.Node
	moved   bool // the node's pod networks changed
	wake    chan struct{}

	// The rest belongs to the goroutine of Run. whole says that all rules must be
	// written, flows what is to be forgotten once they are.
	state *ruleset.State
	whole bool
	flows []ruleset.Flow
	// recalled is what was known before; nil for nothing, and once the first sync took
	// from it which Services are gone.
	recalled *recollection
}

// New finds the machine's packet filter and sets the kernel up for Services.
func New(config Config) (*Proxy, error) {
	filter, err := nftables.New()
	if err != nil {
		return nil, err
	}
	detour, err := nftables.Prepare()
	if err != nil {
		return nil, fmt.Errorf("set the kernel up for services: %w", err)
	}
	return newProxy(config, filter, ruleset.Node{Detour: detour})
}

// Leave takes back what this package made on the machine in an earlier run, so that
// somebody else can carry the traffic of Services.
func Leave(ctx context.Context) error { return nftables.Leave(ctx) }

func newProxy(config Config, filter packetFilter, node ruleset.Node) (*Proxy, error) {
	if config.NodeName == "" || config.Services == nil || config.EndpointSlices == nil || config.Nodes == nil {
		return nil, errors.New("proxy: NodeName, Services, EndpointSlices and Nodes are required")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	known, progress := config.Known, &progress{clock: config.Clock}
	config.Known = nil // it may be large
	p := &Proxy{
		config: config, filter: filter, checks: newHealthChecks(progress), progress: progress, metrics: newMetrics(),
		tracker: changes.New(config.NodeName), node: node,
		wake: make(chan struct{}, 1), state: ruleset.New(node), whole: true,
	}
	if known != nil {
		p.recalled = p.recollect(known)
	}
	return p, nil
}

// Run keeps the rules until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	told, err := p.follow()
	if err != nil {
		return err
	}
	defer p.checks.close()
	go servePages(ctx, p.config.Clock, p.config.HealthAddress, p.healthPages())
	go servePages(ctx, p.config.Clock, p.config.MetricsAddress, p.metrics.pages())
	// With half of the Services known, rules that are there from before would vanish.
	if !p.await(ctx, told) {
		return nil
	}
	check := p.config.Clock.NewTicker(checkEvery)
	defer check.Stop()
	for {
		var retry <-chan time.Time
		began := p.config.Clock.Now()
		whole := p.whole
		err := p.sync(ctx)
		p.metrics.synced(p.config.Clock.Since(began), whole, p.config.Clock.Now(), err)
		rest := settle + (restful-1)*p.config.Clock.Since(began)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			klog.FromContext(ctx).Error(err, "Services do not lead where they should; trying again", "in", retryAfter)
			retry = p.config.Clock.After(retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
			continue
		case <-check.C():
			if err := p.check(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Could not look after the rules of services")
			}
			continue
		case <-p.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.config.Clock.After(rest):
		}
	}
}

// check sets the kernel up again, and has all rules written again, where that is not as it was left.
func (p *Proxy) check(ctx context.Context) error {
	prepared := p.filter.Prepare()
	intact, err := p.filter.Intact(ctx)
	if err != nil {
		return errors.Join(prepared, err)
	}
	if !intact {
		klog.FromContext(ctx).Info("Somebody else changed the rules of services; writing them again")
		p.whole = true
		p.progress.news()
	}
	return prepared
}

// sync writes what changed since the last time, or everything.
func (p *Proxy) sync(ctx context.Context) error {
	p.mu.Lock()
	p.progress.take()
	services := p.tracker.Take()
	if network := p.serviceNetwork(p.tracker); network != p.node.Services {
		p.node.Services, p.whole = network, true
	}
	if p.moved {
		p.moved, p.whole = false, true
		p.node.Pods = p.tracker.Pods()
		services, p.state = p.tracker.All(), ruleset.New(p.node)
	}
	p.mu.Unlock()
	d := p.state.Update(services)
	p.flows = slices.Concat(p.flows, d.Flows, p.gone(services))
	p.checks.update(ctx, services)
	var err error
	if p.whole {
		err = p.filter.Replace(ctx, p.node, p.state.Whole())
	} else {
		err = p.filter.Change(ctx, d)
	}
	p.whole = err != nil
	if err != nil {
		return err
	}
	// The rules are up to date, whatever becomes of the flows.
	p.progress.done()
	n, err := p.filter.Forget(p.flows)
	if err != nil {
		return err
	}
	p.flows = nil
	if len(services) > 0 {
		klog.FromContext(ctx).V(2).Info(
			"Services lead elsewhere",
			"services", len(services), "chains", len(d.Chains), "elements", len(d.Add)+len(d.Delete), "forgotten", n,
		)
	}
	return nil
}

// kubernetes is the Service of the API server, which every cluster has.
var kubernetes = types.NamespacedName{Namespace: "default", Name: "kubernetes"}

// serviceNetwork is the configured network if the API server's Service is in it, and else none: the network would be
// another's, and packets to it somebody's.
func (p *Proxy) serviceNetwork(t *changes.Tracker) netip.Prefix {
	if ip := t.ClusterIP(kubernetes); ip.IsValid() && p.config.ServiceNetwork.Contains(ip) {
		return p.config.ServiceNetwork.Masked()
	}
	return netip.Prefix{}
}

// follow has everything noted that the caches tell.
func (p *Proxy) follow() (told []cache.InformerSynced, err error) {
	for _, source := range []struct {
		what     string
		informer cache.SharedIndexInformer
		note     func(name types.NamespacedName, obj any)
	}{
		{"services", p.config.Services, func(name types.NamespacedName, obj any) {
			svc, _ := obj.(*corev1.Service)
			p.tracker.Service(name, svc)
			p.metrics.services.Inc()
		}},
		{"endpoint slices", p.config.EndpointSlices, func(name types.NamespacedName, obj any) {
			slice, _ := obj.(*discoveryv1.EndpointSlice)
			p.tracker.Slice(name, slice)
			p.metrics.slices.Inc()
		}},
		{"the node", p.config.Nodes, func(name types.NamespacedName, obj any) {
			if node, ok := obj.(*corev1.Node); ok && name.Name == p.config.NodeName {
				p.moved = p.tracker.Node(node) || p.moved
				p.progress.node(node)
			}
		}},
	} {
		registration, err := source.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { p.note(source.note, obj, obj) },
			UpdateFunc: func(_, obj any) { p.note(source.note, obj, obj) },
			DeleteFunc: func(obj any) { p.note(source.note, obj, nil) },
		})
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", source.what, err)
		}
		told = append(told, registration.HasSynced)
	}
	return told, nil
}

// note takes news in; now is nil for what is gone.
func (p *Proxy) note(take func(types.NamespacedName, any), obj, now any) {
	key, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return // not an object of the API
	}
	p.mu.Lock()
	take(key.AsNamespacedName(), now)
	p.progress.news()
	p.mu.Unlock()
	p.metrics.lastQueued.Set(unix(p.config.Clock.Now()))
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
