package dns

import (
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// Names of the indices that this package adds to the caches.
const (
	byService = "dns.service"
	byAddress = "dns.address"
)

// Objects are the node's caches of what names speak of. Others may use them too,
// as long as they are not started before New has added its indices.
type Objects struct {
	Services, EndpointSlices, Namespaces cache.SharedIndexInformer
}

// Known is what the node knew in an earlier run.
type Known struct {
	Services       []*corev1.Service
	EndpointSlices []*discoveryv1.EndpointSlice
	Namespaces     []*corev1.Namespace
}

// The indices for what questions ask.
var (
	serviceIndices = cache.Indexers{byAddress: serviceAddresses}
	sliceIndices   = cache.Indexers{byService: sliceService, byAddress: namedAddresses}
)

// stores are where objects are found. They are a zone.Source.
type stores struct {
	services, slices, namespaces cache.Indexer
}

// live are the node's caches.
func (o Objects) live() (stores, error) {
	for _, step := range []struct {
		what     string
		informer cache.SharedIndexInformer
		by       cache.Indexers
	}{{"services", o.Services, serviceIndices}, {"endpoint slices", o.EndpointSlices, sliceIndices}} {
		if err := step.informer.AddIndexers(step.by); err != nil {
			return stores{}, fmt.Errorf("index %s: %w", step.what, err)
		}
	}
	return stores{o.Services.GetIndexer(), o.EndpointSlices.GetIndexer(), o.Namespaces.GetIndexer()}, nil
}

// stores are the same for what was known.
func (k *Known) stores() (*stores, error) {
	s := &stores{
		cache.NewIndexer(cache.MetaNamespaceKeyFunc, serviceIndices),
		cache.NewIndexer(cache.MetaNamespaceKeyFunc, sliceIndices),
		cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
	}
	return s, errors.Join(fill(s.services, k.Services), fill(s.slices, k.EndpointSlices), fill(s.namespaces, k.Namespaces))
}

func fill[T any](store cache.Indexer, objects []T) error {
	for _, obj := range objects {
		if err := store.Add(obj); err != nil {
			return fmt.Errorf("take in what was known: %w", err)
		}
	}
	return nil
}

// synced says whether everything was listed once.
func (o Objects) synced() bool {
	return o.Services.HasSynced() && o.EndpointSlices.HasSynced() && o.Namespaces.HasSynced()
}

func serviceAddresses(obj any) (out []string, err error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return nil, nil
	}
	for _, text := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, ip.String())
		}
	}
	return out, nil
}

func sliceService(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// namedAddresses are the addresses that have a name of their own to point back to.
func namedAddresses(obj any) (out []string, err error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil
	}
	for i := range slice.Endpoints {
		if e := &slice.Endpoints[i]; e.Hostname != nil && *e.Hostname != "" {
			out = append(out, e.Addresses...)
		}
	}
	return out, nil
}

// Namespace implements zone.Source.
func (s stores) Namespace(name string) bool {
	_, found, err := s.namespaces.GetByKey(name)
	return found && err == nil
}

// Service implements zone.Source.
func (s stores) Service(namespace, name string) *corev1.Service {
	obj, found, err := s.services.GetByKey(namespace + "/" + name)
	if !found || err != nil {
		return nil
	}
	svc, _ := obj.(*corev1.Service)
	return svc
}

// Slices implements zone.Source.
func (s stores) Slices(namespace, service string) []*discoveryv1.EndpointSlice {
	return indexed[*discoveryv1.EndpointSlice](s.slices, byService, namespace+"/"+service)
}

// ServicesAt implements zone.Source.
func (s stores) ServicesAt(ip netip.Addr) []*corev1.Service {
	return indexed[*corev1.Service](s.services, byAddress, ip.String())
}

// SlicesAt implements zone.Source.
func (s stores) SlicesAt(ip netip.Addr) []*discoveryv1.EndpointSlice {
	return indexed[*discoveryv1.EndpointSlice](s.slices, byAddress, ip.String())
}

func indexed[T any](store cache.Indexer, index, key string) (out []T) {
	found, err := store.ByIndex(index, key)
	if err != nil {
		return nil // No such index: not possible, they are made with it.
	}
	for _, obj := range found {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
