package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/registry/service"
	"github.com/everynode/everynode/internal/apiserver/scheme"
	"github.com/everynode/everynode/internal/apiserver/watchhistory"
)

// StorageOpener opens the database's storage of one resource.
type StorageOpener func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string) (storage.Interface, error)

// ReservingOpener opens the storage of a resource whose objects hold names that no other
// object of the resource may hold. What it returns also knows who holds them.
type ReservingOpener func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string,
	holds func(runtime.Object) (holder string, names []string)) (storage.Interface, error)

// reserving are the resources whose objects hold names.
var reserving = map[schema.GroupResource]func(runtime.Object) (holder string, names []string){{Resource: "services"}: service.Holds}

// storageOptions answers, for each resource, how it is encoded and where it is kept.
type storageOptions struct {
	types   *scheme.Set
	tracker flowcontrolrequest.StorageObjectCountTracker
	etcd    *genericoptions.EtcdOptions
	// transformers encrypt what is stored; nil for nothing.
	transformers value.ResourceTransformers
	// open is nil when the database is reached over the network.
	open          StorageOpener
	openReserving ReservingOpener
	// reservations are what the storages of such resources know, once they are open.
	reservations map[schema.GroupResource]service.Reservations
}

var _ generic.RESTOptionsGetter = (*storageOptions)(nil)

// uncached resources are written often and read seldom: a watch cache would
// keep every change of the last minutes in memory for nobody.
var uncached = map[schema.GroupResource]bool{{Resource: "events"}: true}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *storageOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	version, err := o.types.VersionFor(resource.Group)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	format := runtime.ContentTypeJSON
	if scheme.HasBinaryForm(example) {
		format = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(o.types.Codecs.SupportedMediaTypes(), format)
	internal := schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal}
	cfg := o.etcd.StorageConfig.ForResource(resource)
	cfg.Codec = o.types.Codecs.CodecForVersions(info.Serializer, o.types.Codecs.UniversalDeserializer(), version, internal)
	cfg.EncodeVersioner = version
	if o.transformers != nil {
		cfg.Transformer = o.transformers.TransformerForResource(resource)
	}
	prefix := resource.Resource
	if resource.Group != "" {
		prefix = resource.Group + "/" + resource.Resource
	}
	return generic.RESTOptions{
		StorageConfig: cfg, Decorator: o.decorator(resource), ResourcePrefix: prefix,
		EnableGarbageCollection: o.etcd.EnableGarbageCollection, DeleteCollectionWorkers: o.etcd.DeleteCollectionWorkers,
		StorageObjectCountTracker: o.tracker, CountMetricPollPeriod: o.etcd.StorageConfig.CountMetricPollPeriod,
	}, nil
}

// remembered is about how many changes the watch cache keeps of kinds that have an object for each node, and change
// often: what a watch that was cut off may have missed in a second of the worst rollout.
var remembered = map[schema.GroupResource]int{
	{Resource: "pods"}:  3200,
	{Resource: "nodes"}: 1600,
	{Group: "coordination.k8s.io", Resource: "leases"}: 800,
}

func (o *storageOptions) decorator(resource schema.GroupResource) generic.StorageDecorator {
	cached := !uncached[resource]
	holds := reserving[resource]
	switch {
	case holds != nil:
		return opened(cached, func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, prefix string) (storage.Interface, error) {
			opened, err := o.openReserving(c, newObject, newList, prefix, holds)
			if r, ok := opened.(service.Reservations); ok {
				o.reservations[resource] = r
			}
			return opened, err
		})
	case o.open != nil:
		return opened(cached, o.open)
	case cached:
		return genericregistry.StorageWithCacher()
	default:
		return generic.UndecoratedStorage
	}
}

// opened has a storage that is opened by a function of ours, with the library's watch
// cache on top.
func opened(cached bool, open StorageOpener) generic.StorageDecorator {
	return func(c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		raw, err := open(c, newObject, newList, prefix)
		if err != nil || !cached {
			return raw, func() {}, err
		}
		watched := raw
		if events := remembered[c.GroupResource]; events > 0 {
			watched = watchhistory.Bound(raw, events, max(c.EventsHistoryWindow, storagebackend.DefaultEventsHistoryWindow), clock.RealClock{})
		}
		watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: watched, Versioner: storage.APIObjectVersioner{}, GroupResource: c.GroupResource,
			EventsHistoryWindow: c.EventsHistoryWindow, ResourcePrefix: prefix, KeyFunc: key,
			NewFunc: newObject, NewListFunc: newList, GetAttrsFunc: attrs, IndexerFuncs: triggers, Indexers: indexers, Codec: c.Codec,
		})
		if err != nil {
			return nil, nil, err
		}
		delegator := cacher.NewCacheDelegator(watchCache, raw)
		return delegator, func() { delegator.Stop(); watchCache.Stop() }, nil
	}
}
