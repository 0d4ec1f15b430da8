// Package decorated wraps storages in the moment in which they are opened. What is wrapped later is in the hands of the
// library already, which counts its objects.
package decorated

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Wrap returns what opens the same storages, wrapped.
func Wrap(open generic.StorageDecorator, wrap func(storage.Interface) storage.Interface) generic.StorageDecorator {
	return func(c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		opened, end, err := open(c, prefix, key, newObject, newList, attrs, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return wrap(opened), end, nil
	}
}
