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
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// StorageOpener opens the database's storage of one resource.
type StorageOpener func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string) (storage.Interface, error)

// storageOptions answers, for each resource, how it is encoded and where it is kept.
type storageOptions struct {
	types   *scheme.Set
	tracker flowcontrolrequest.StorageObjectCountTracker
	etcd    *genericoptions.EtcdOptions
	// open is nil when the database is reached over the network.
	open StorageOpener
}

var _ generic.RESTOptionsGetter = (*storageOptions)(nil)

// uncached resources are written often and read seldom: a watch cache would
// keep every change of the last minutes in memory for nobody.
var uncached = map[schema.GroupResource]bool{{Resource: "events"}: true}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *storageOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	version, err := o.types.VersionFor(resource.Group)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	info, _ := runtime.SerializerInfoForMediaType(o.types.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	internal := schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal}
	cfg := o.etcd.StorageConfig.ForResource(resource)
	cfg.Codec = o.types.Codecs.CodecForVersions(info.Serializer, o.types.Codecs.UniversalDeserializer(), version, internal)
	cfg.EncodeVersioner = version
	prefix := resource.Resource
	if resource.Group != "" {
		prefix = resource.Group + "/" + resource.Resource
	}
	return generic.RESTOptions{
		StorageConfig: cfg, Decorator: o.decorator(!uncached[resource]), ResourcePrefix: prefix,
		EnableGarbageCollection: o.etcd.EnableGarbageCollection, DeleteCollectionWorkers: o.etcd.DeleteCollectionWorkers,
		StorageObjectCountTracker: o.tracker, CountMetricPollPeriod: o.etcd.StorageConfig.CountMetricPollPeriod,
	}, nil
}

func (o *storageOptions) decorator(cached bool) generic.StorageDecorator {
	switch {
	case o.open != nil:
		return o.embedded(cached)
	case cached:
		return genericregistry.StorageWithCacher()
	default:
		return generic.UndecoratedStorage
	}
}

// embedded opens the storage in process, with the library's watch cache on top.
func (o *storageOptions) embedded(cached bool) generic.StorageDecorator {
	return func(c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		raw, err := o.open(c, newObject, newList, prefix)
		if err != nil || !cached {
			return raw, func() {}, err
		}
		watchCache, err := cacher.NewCacherFromConfig(cacher.Config{
			Storage: raw, Versioner: storage.APIObjectVersioner{}, GroupResource: c.GroupResource,
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
