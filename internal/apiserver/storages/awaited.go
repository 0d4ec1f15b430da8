package storages

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"github.com/everynode/everynode/internal/apiserver/decorated"
)

const (
	// loadedWithin is how long a list waits for a watch cache that is being loaded.
	loadedWithin = 3 * time.Second
	loadedCheck  = 20 * time.Millisecond
)

// awaited has lists wait until the watch cache of a storage is loaded. Each change of a definition opens a new storage
// for its objects. Clients are told to come again in a second; but the library's own deletion of a definition lists its
// objects at once, and when that fails it may not try again for five minutes: it takes no notice of a conflict with
// what it wrote itself.
func awaited(open generic.StorageDecorator) generic.StorageDecorator {
	return decorated.Wrap(open, func(opened storage.Interface) storage.Interface { return awaitedStorage{opened} })
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
