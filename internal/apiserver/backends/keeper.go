package backends

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/util/proxy"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	apiserviceclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
)

// Config is what asking needs.
type Config struct {
	APIServices    informers.APIServiceInformer
	Client         apiserviceclient.APIServicesGetter
	Services       coreinformers.ServiceInformer
	EndpointSlices discoveryinformers.EndpointSliceInformer
	// Resolve finds somebody who answers for a Service, and Dial leads there.
	Resolve func(namespace, name string, port int32) (*url.URL, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	// Certificate and key are what servers know us by.
	Certificate func() (certificate, key []byte)
	// Discovery is told what kinds there are.
	Discovery aggregated.ResourceManager
}

// Keeper asks the servers behind all APIServices, each by itself.
type Keeper struct {
	config    Config
	slices    proxy.EndpointSliceGetter
	ledger    ledger
	handed    ledger // of documents on their way to clients
	discovery aggregatorserver.DiscoveryAggregationController
	openAPI   openAPI
	synced    []cache.InformerSynced
	running   context.Context //nolint:containedctx // servers are asked until it ends

	mu     sync.RWMutex
	minded map[string]*minder // by the name of the APIService
	// ending tells when the last of a name that was stopped has put everything away.
	ending map[string]chan struct{}
}

// New follows APIServices; Run begins to ask.
func New(c Config) (*Keeper, error) {
	k := &Keeper{
		config: c,
		ledger: ledger{left: allDocuments},
		handed: handedLedger(),
		minded: map[string]*minder{},
		ending: map[string]chan struct{}{},
	}
	k.discovery = aggregatorserver.NewDiscoveryManager(c.Discovery.WithSource(aggregated.AggregatorSource))
	var err error
	k.slices, err = proxy.NewEndpointSliceIndexerGetter(c.EndpointSlices)
	if err != nil {
		return nil, fmt.Errorf("follow EndpointSlices by Service: %w", err)
	}
	// A factory starts those that were asked for before.
	c.APIServices.Informer()
	c.Services.Informer()
	return k, nil
}

// startPatience is how long the start waits for what the servers say at first. Those that
// have not answered by then are known, and what they have is not.
const startPatience = answerPatience

// Run asks until ctx ends. It returns when each server has been asked once, or after a
// while without.
func (k *Keeper) Run(ctx context.Context) error {
	k.running = ctx
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		k.config.APIServices.Informer():    handlerOf(k.follow, k.unfollow),
		k.config.Services.Informer():       handlerOf(k.touchService, k.touchService),
		k.config.EndpointSlices.Informer(): handlerOf(k.touchSlice, k.touchSlice),
	} {
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("follow what APIServices lead to: %w", err)
		}
		k.synced = append(k.synced, registration.HasSynced)
	}
	go k.openAPI.followLocal(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), k.synced...) {
		return nil // the server has been stopped
	}
	patience, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	k.mu.Lock()
	first := make([]*minder, 0, len(k.minded))
	for _, m := range k.minded {
		first = append(first, m)
	}
	k.mu.Unlock()
	for _, m := range first {
		select {
		case <-m.asked:
		case <-patience.Done():
		}
	}
	known := make(chan struct{})
	go k.discovery.Run(ctx.Done(), known)
	select {
	case <-known:
	case <-ctx.Done():
	}
	return nil
}

// handlerOf calls the functions with objects of a type.
func handlerOf[T any](changed, gone func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if o, ok := obj.(T); ok {
				changed(o)
			}
		},
		UpdateFunc: func(_, obj any) {
			if o, ok := obj.(T); ok {
				changed(o)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if o, ok := obj.(T); ok {
				gone(o)
			}
		},
	}
}

// follow begins to ask a server, or asks it in another way from now on.
func (k *Keeper) follow(s *apiregistrationv1.APIService) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := k.minded[s.Name]
	switch {
	case s.Spec.Service == nil:
		k.end(s.Name)
	case last != nil && last.now().UID == s.UID && reference(last.now()) == reference(s):
		last.update(s)
	default:
		k.end(s.Name)
		next := newMinder(k, s, k.ending[s.Name])
		k.minded[s.Name] = next
		go next.run(k.running)
	}
}

func (k *Keeper) unfollow(s *apiregistrationv1.APIService) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end(s.Name)
}

// end stops asking. The caller holds the lock.
func (k *Keeper) end(name string) {
	if m := k.minded[name]; m != nil {
		m.stop()
		delete(k.minded, name)
		k.ending[name] = m.ended
	}
}

// ended is called by a minder that has put everything away.
func (k *Keeper) ended(name string, m *minder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(m.ended)
	if k.ending[name] == m.ended {
		delete(k.ending, name)
	}
}

// Asks says whether a version is that of a server of others.
func (k *Keeper) Asks(group, version string) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.minded[version+"."+group] != nil
}

// reference is whom an APIService leads to.
func reference(s *apiregistrationv1.APIService) (r struct {
	namespace, name string
	port            int32
}) {
	if to := s.Spec.Service; to != nil && to.Port != nil {
		r.namespace, r.name, r.port = to.Namespace, to.Name, *to.Port
	}
	return r
}

func (k *Keeper) touchService(s *corev1.Service) { k.touch(s.Namespace, s.Name) }

func (k *Keeper) touchSlice(s *discoveryv1.EndpointSlice) {
	k.touch(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
}

// touch asks the servers of a Service again, since others may answer for it.
func (k *Keeper) touch(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.minded {
		if to := reference(m.now()); to.namespace == namespace && to.name == name {
			m.poke()
		}
	}
}

// stateOf is what is known of the Service of an APIService.
func (k *Keeper) stateOf(s *apiregistrationv1.APIService) (now state) {
	to := reference(s)
	now.service, now.err = k.config.Services.Lister().Services(to.namespace).Get(to.name)
	if now.err != nil {
		return now
	}
	now.slices, now.err = k.slices.GetEndpointSlices(to.namespace, to.name)
	return now
}

// publish has all that a server says merged into what this server tells.
func (k *Keeper) publish(s *apiregistrationv1.APIService, d *documents) error {
	k.discovery.AddAPIService(s, d)
	return k.openAPI.take(s, d)
}

func (k *Keeper) forget(name string) {
	k.discovery.RemoveAPIService(name)
	k.openAPI.drop(name)
}

// longest is how long a pause between two questions can become.
const longest = 30 * time.Second
