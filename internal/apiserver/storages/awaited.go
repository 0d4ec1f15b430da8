package storages

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

const (
	// loadedWithin is how long a list waits for a watch cache that is being loaded.
	loadedWithin = 3 * time.Second
	loadedCheck  = 20 * time.Millisecond
)

// awaited has lists wait until the watch cache of a storage is loaded. Each change of a definition opens a new storage
// for its
// objects. Clients are told to come again in a second; but the library's own deletion of a definition lists its
// objects at
// once, and when that fails it may not try again for five minutes: it takes no notice of a conflict with what it wrote
// itself.
func awaited(decorate generic.StorageDecorator) generic.StorageDecorator {
	return func(c *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attrs storage.AttrFunc, triggers storage.IndexerFuncs,
		indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		opened, end, err := decorate(c, prefix, key, newObject, newList, attrs, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return awaitedStorage{opened}, end, nil
	}
}

type awaitedStorage struct{ storage.Interface }

// GetList implements storage.Interface.
func (s awaitedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	for deadline := time.Now().Add(loadedWithin); ; {
		err := s.Interface.GetList(ctx, key, opts, list)
		if !apierrors.IsTooManyRequests(err) || !time.Now().Before(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(loadedCheck):
		}
	}
}
