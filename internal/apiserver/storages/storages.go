// Package storages decides where and how the objects of each kind are kept: in memory in our own way, or with the
// library's watch cache on top of the embedded database or of servers of etcd.
package storages

import (
	"context"
	"fmt"
	"reflect"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/hotstore"
	"github.com/everynode/everynode/internal/apiserver/registry/lease"
	"github.com/everynode/everynode/internal/apiserver/registry/service"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
	"github.com/everynode/everynode/internal/apiserver/watchhistory"
)

// Opener opens the database's storage of one resource.
type Opener func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string) (storage.Interface, error)

// ReservingOpener opens the storage of a resource whose objects hold names that no other
// object of the resource may hold. What it returns also knows who holds them.
type ReservingOpener func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string,
	holds func(runtime.Object) (holder string, names []string)) (storage.Interface, error)

// HotOpener opens the storage of one resource that decodes with the decoder, and tells
// what the database holds of it.
type HotOpener func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string,
	decoder etcd3.Decoder) (storage.Interface, hotstore.Database, error)

// Hot makes an opener of one that tells by a type of its own.
func Hot[D hotstore.Database](open func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
	resourcePrefix string,
	decoder etcd3.Decoder) (storage.Interface, D, error)) HotOpener {
	return func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, prefix string,
		decoder etcd3.Decoder,
	) (storage.Interface, hotstore.Database, error) {
		return open(c, newObject, newList, prefix, decoder)
	}
}

// reserving are the resources whose objects hold names, and those that are read beside them in the database itself.
var reserving = map[schema.GroupResource]func(runtime.Object) (holder string, names []string){
	{Resource: "services"}: service.Holds,
	{Group: networkingv1.GroupName, Resource: "ipaddresses"}:  service.HoldsAddress,
	{Group: networkingv1.GroupName, Resource: "servicecidrs"}: service.HoldsNothing,
}

// Config is what storages need from their surroundings.
type Config struct {
	Types   *scheme.Set
	Tracker flowcontrolrequest.StorageObjectCountTracker
	Etcd    *genericoptions.EtcdOptions
	// Transformers encrypt what is stored; nil for nothing.
	Transformers value.ResourceTransformers
	// Open is nil when the database is reached over the network.
	Open          Opener
	OpenReserving ReservingOpener
	// OpenHot is nil when all kinds are kept the library's way.
	OpenHot HotOpener
	// Shared says that other servers write to the database as well.
	Shared bool
}

// Getter answers, for each resource, how it is encoded and where it is kept.
type Getter struct {
	Config
	// hot are the caches of kinds that are kept in our own way, by the type of the objects.
	hot map[reflect.Type]*hotstore.Cache
	// reservations are what the storages of such resources know, once they are open.
	reservations map[schema.GroupResource]service.Reservations
}

var _ generic.RESTOptionsGetter = (*Getter)(nil)

// Open returns the storages of these kinds, if what they hold can be read.
func Open(cfg Config, kinds []resource.Definition) (*Getter, error) {
	o := &Getter{
		Config: cfg, hot: map[reflect.Type]*hotstore.Cache{},
		reservations: map[schema.GroupResource]service.Reservations{},
	}
	return o, o.tryStored(kinds)
}

// ReservationsOf returns what the storage of a resource knows of held names, once it is open; nil for others.
func (o *Getter) ReservationsOf(r schema.GroupResource) service.Reservations {
	return o.reservations[r]
}

// ListWatch returns by what an informer in this process gets the very objects of this type that are held in memory, or
// nil if none are held that way. They are never changed.
func (o *Getter) ListWatch(of runtime.Object) cache.ListerWatcher {
	if hot := o.hot[reflect.TypeOf(of)]; hot != nil {
		return hot.ListWatch()
	}
	return nil
}

// uncached resources have no watch cache. Events are written often and read seldom: it would only cost memory.
// NodeStartups are few, and read as they are now whenever a node is created: a watch cache knows that it has heard of
// everything only at its database's next word of progress, a tenth of a second later.
var uncached = map[schema.GroupResource]bool{
	{Resource: "events"}: true, {Group: v1alpha1.GroupVersion.Group, Resource: "nodestartups"}: true,
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *Getter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	version, err := o.Types.VersionFor(resource.Group)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	format := runtime.ContentTypeJSON
	if scheme.HasBinaryForm(example) {
		format = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(o.Types.Codecs.SupportedMediaTypes(), format)
	internal := schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal}
	if version == v1alpha1.GroupVersion {
		own := newer.ForStorage(o.Types.Scheme)
		options := o.encoded(resource, o.Types.Codecs.CodecForVersions(own, own, version, internal), version)
		options.Decorator = keeping(options.Decorator)
		return options, nil
	}
	codec := o.Types.Codecs.CodecForVersions(info.Serializer, o.Types.Codecs.UniversalDeserializer(), version, internal)
	return o.encoded(resource, codec, version), nil
}

// encoded are the options of a resource whose objects the codec reads and writes.
func (o *Getter) encoded(resource schema.GroupResource, codec runtime.Codec,
	version runtime.GroupVersioner) generic.RESTOptions {
	cfg := o.Etcd.StorageConfig.ForResource(resource)
	cfg.Codec, cfg.EncodeVersioner = codec, version
	if o.Transformers != nil {
		cfg.Transformer = o.Transformers.TransformerForResource(resource)
	}
	prefix := resource.Resource
	if resource.Group != "" {
		prefix = resource.Group + "/" + resource.Resource
	}
	return generic.RESTOptions{
		StorageConfig: cfg, Decorator: o.decorator(resource, cfg.Transformer), ResourcePrefix: prefix,
		EnableGarbageCollection:   o.Etcd.EnableGarbageCollection,
		DeleteCollectionWorkers:   o.Etcd.DeleteCollectionWorkers,
		StorageObjectCountTracker: o.Tracker, CountMetricPollPeriod: o.Etcd.StorageConfig.CountMetricPollPeriod,
	}
}

// Encoder makes of objects of a resource what is stored of them, for who writes them together with others.
func (o *Getter) Encoder(resource schema.GroupResource,
	example runtime.Object) (func(key string, obj runtime.Object) ([]byte, error), error) {
	options, err := o.GetRESTOptions(resource, example)
	if err != nil {
		return nil, err
	}
	codec, transformer := options.StorageConfig.Codec, options.StorageConfig.Transformer
	return func(key string, obj runtime.Object) ([]byte, error) {
		data, err := runtime.Encode(codec, obj)
		if err == nil && transformer != nil {
			data, err = transformer.TransformToStorage(context.Background(), data, value.DefaultContext(key))
		}
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", key, err)
		}
		return data, nil
	}, nil
}

// Foreign are the storages of resources of another scheme than ours, which the codec reads and writes.
func (o *Getter) Foreign(codec runtime.Codec, version runtime.GroupVersioner) generic.RESTOptionsGetter {
	return foreign{o, codec, version}
}

// foreign is storage for resources of another scheme than ours.
type foreign struct {
	*Getter
	codec   runtime.Codec
	version runtime.GroupVersioner
}

// CustomPrefix begins the keys of custom objects. A definition may name a resource that
// is ours, and its end is the end of all of its objects.
const CustomPrefix = "customresources/"

// GetRESTOptions implements generic.RESTOptionsGetter.
func (f foreign) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	options := f.encoded(resource, f.codec, f.version)
	options.Decorator = f.ordinary(true)
	if f.version == nil {
		options.ResourcePrefix = CustomPrefix + options.ResourcePrefix
		options.Decorator = awaited(options.Decorator)
	}
	return options, nil
}

// hot is how many changes are remembered of the kinds that have an object for each node,
// and change often: what a watch that was cut off may have missed in a second of the worst
// rollout. These kinds are kept in a way of our own (package hotstore).
var hot = map[schema.GroupResource]int{
	{Resource: "pods"}:  4000,
	{Resource: "nodes"}: 2000,
	{Group: "coordination.k8s.io", Resource: "leases"}: 1000,
}

// renewals are the hot kinds that change most often only to say that somebody is alive. It
// is too much for a database to be told of each heartbeat of each node, where it is one
// server's only.
var renewals = map[schema.GroupResource]*hotstore.Renewal{
	{Group: "coordination.k8s.io", Resource: "leases"}: {
		Renewable: func(now runtime.Object) bool { return lease.Renewable(now.(*coordinationv1.Lease)) },
		Renewed: func(now, next runtime.Object) runtime.Object {
			if renewed := lease.Renewed(now.(*coordinationv1.Lease), next.(*coordinationv1.Lease)); renewed != nil {
				return renewed
			}
			return nil
		},
		Keep: 5 * time.Minute,
	},
}

// decorator is where it is decided how a kind is kept. Hot kinds are kept in our own way if
// the database is embedded and they neither are nor can become encrypted in it; all else
// is kept the library's way.
func (o *Getter) decorator(resource schema.GroupResource, transformer value.Transformer) generic.StorageDecorator {
	cached := !uncached[resource]
	holds := reserving[resource]
	plain := transformer == nil || transformer == identity.NewEncryptCheckTransformer()
	switch {
	case o.OpenHot != nil && hot[resource] > 0 && plain:
		return o.openedHot(hot[resource])
	case holds != nil:
		return opened(cached, func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object,
			prefix string) (storage.Interface, error) {
			opened, err := o.OpenReserving(c, newObject, newList, prefix, holds)
			if r, ok := opened.(service.Reservations); ok {
				o.reservations[resource] = r
			}
			return opened, err
		})
	}
	return o.ordinary(cached)
}

// ordinary keeps a kind the library's way.
func (o *Getter) ordinary(cached bool) generic.StorageDecorator {
	switch {
	case o.Open != nil:
		return opened(cached, o.Open)
	case cached:
		return genericregistry.StorageWithCacher()
	default:
		return generic.UndecoratedStorage
	}
}

// opened has a storage that is opened by a function of ours, with the library's watch
// cache on top.
func opened(cached bool, open Opener) generic.StorageDecorator {
	return func(c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		raw, err := open(c, newObject, newList, prefix)
		if err != nil || !cached {
			return raw, closeOf(raw), err
		}
		watched := raw
		if events := hot[c.GroupResource]; events > 0 {
			watched = watchhistory.Bound(raw, events, max(c.EventsHistoryWindow,
				storagebackend.DefaultEventsHistoryWindow), clock.RealClock{})
		}
		watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: watched, Versioner: storage.APIObjectVersioner{}, GroupResource: c.GroupResource,
			EventsHistoryWindow: c.EventsHistoryWindow, ResourcePrefix: prefix, KeyFunc: key,
			NewFunc: newObject, NewListFunc: newList, GetAttrsFunc: attrs, IndexerFuncs: triggers, Indexers: indexers,
			Codec: c.Codec,
		})
		if err != nil {
			return nil, nil, err
		}
		delegator := cacher.NewCacheDelegator(watchCache, raw)
		return delegator, func() { delegator.Stop(); watchCache.Stop(); closeOf(raw)() }, nil
	}
}

// closeOf is what ends a storage: kinds that are added come and go, and each has its own.
func closeOf(raw storage.Interface) factory.DestroyFunc {
	if c, ok := raw.(interface{ Close() }); ok {
		return c.Close
	}
	return func() {}
}

// openedHot has a storage with a cache of our own on top.
func (o *Getter) openedHot(history int) generic.StorageDecorator {
	return func(c *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		decoder := hotstore.NewDecoder(c.Codec, newObject)
		by := *c
		by.Codec = decoder.Codec()
		raw, database, err := o.OpenHot(&by, newObject, newList, prefix, decoder)
		if err != nil {
			return nil, nil, err
		}
		renewal := renewals[c.GroupResource]
		if o.Shared {
			renewal = nil // The other servers know of nothing but what is in the database.
		}
		opened, err := hotstore.New(hotstore.Config{
			GroupResource: c.GroupResource, ResourcePrefix: prefix, Storage: raw, Decoder: decoder, Database: database,
			New: newObject, NewList: newList, Attributes: attrs, Triggers: triggers, Indexers: indexers,
			History: history, Clock: clock.RealClock{},
			Renewal: renewal,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("open the cache of %s: %w", c.GroupResource, err)
		}
		o.hot[reflect.TypeOf(newObject())] = opened
		return opened, func() { opened.Stop(); closeOf(raw)() }, nil
	}
}
