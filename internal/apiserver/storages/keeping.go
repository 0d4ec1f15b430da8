package storages

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/internal/apiserver/decorated"
)

// keeping has a storage take no object that was read without some of its fields, since a newer server wrote them. The
// registry refuses what people write; this is for what the library writes by itself, such as that an object waits for
// its finalizers.
func keeping(open generic.StorageDecorator) generic.StorageDecorator {
	return decorated.Wrap(open, func(s storage.Interface) storage.Interface { return keeper{s} })
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
