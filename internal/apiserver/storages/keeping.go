package storages

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/api/newer"
)

// keeping has a storage take no object that was read without some of its fields, since a newer server wrote them. The
// registry refuses what people write; this is for what the library writes by itself, such as that an object waits for
// its finalizers.
func keeping(open generic.StorageDecorator) generic.StorageDecorator {
	return func(c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		opened, destroy, err := open(c, prefix, key, newObject, newList, attrs, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return keeper{opened}, destroy, nil
	}
}

type keeper struct{ storage.Interface }

// GuaranteedUpdate implements storage.Interface.
func (k keeper) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	return k.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions,
		func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
			out, ttl, err := update(input, meta)
			if err == nil {
				err = newer.Refuse(out)
			}
			return out, ttl, err
		}, cached)
}
