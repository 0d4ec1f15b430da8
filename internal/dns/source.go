package dns

import (
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

// index prepares the caches for what questions ask.
func (o Objects) index() error {
	for _, step := range []struct {
		what     string
		informer cache.SharedIndexInformer
		by       cache.Indexers
	}{
		{"services", o.Services, cache.Indexers{byAddress: serviceAddresses}},
		{"endpoint slices", o.EndpointSlices, cache.Indexers{byService: sliceService, byAddress: namedAddresses}},
	} {
		if err := step.informer.AddIndexers(step.by); err != nil {
			return fmt.Errorf("index %s: %w", step.what, err)
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
func (o Objects) Namespace(name string) bool {
	_, found, err := o.Namespaces.GetStore().GetByKey(name)
	return found && err == nil
}

// Service implements zone.Source.
func (o Objects) Service(namespace, name string) *corev1.Service {
	obj, found, err := o.Services.GetStore().GetByKey(namespace + "/" + name)
	if !found || err != nil {
		return nil
	}
	svc, _ := obj.(*corev1.Service)
	return svc
}

// Slices implements zone.Source.
func (o Objects) Slices(namespace, service string) []*discoveryv1.EndpointSlice {
	return indexed[*discoveryv1.EndpointSlice](o.EndpointSlices, byService, namespace+"/"+service)
}

// ServicesAt implements zone.Source.
func (o Objects) ServicesAt(ip netip.Addr) []*corev1.Service {
	return indexed[*corev1.Service](o.Services, byAddress, ip.String())
}

// SlicesAt implements zone.Source.
func (o Objects) SlicesAt(ip netip.Addr) []*discoveryv1.EndpointSlice {
	return indexed[*discoveryv1.EndpointSlice](o.EndpointSlices, byAddress, ip.String())
}

func indexed[T any](informer cache.SharedIndexInformer, index, key string) (out []T) {
	found, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		return nil // No such index: not possible, New added it.
	}
	for _, obj := range found {
		if t, ok := obj.(T); ok {
			out = append(out, t)
		}
	}
	return out
}
