package hotstore

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Versioner implements storage.Interface.
func (c *Cache) Versioner() storage.Versioner { return c.versioner }

type carefulKey struct{}

// Careful marks a writer who changes neither the object from which it makes another one nor
// the answer, but for their outermost fields. Then both share the rest with the cache.
func Careful(ctx context.Context) context.Context {
	return context.WithValue(ctx, carefulKey{}, true)
}

func isCareful(ctx context.Context) bool { return ctx.Value(carefulKey{}) != nil }

// Create implements storage.Interface.
func (c *Cache) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	defer c.Decoder.answer(ctx, out)()
	defer c.writing(key, out)()
	return c.Storage.Create(ctx, key, obj, out, ttl) //nolint:wrapcheck // The registry knows these errors.
}

// Delete implements storage.Interface. It looks at the object in memory first.
func (c *Cache) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, options storage.DeleteOptions) error {
	defer c.writing(key, out)()
	known := c.known(key)
	if options.ExpectTransformOrDecodeError {
		//nolint:wrapcheck // The registry knows these errors.
		return c.Storage.Delete(ctx, key, out, preconditions, validate, known.object, options)
	}
	v, err := conversion.EnforcePtr(out)
	if err != nil {
		return fmt.Errorf("unable to convert output object to pointer: %w", err)
	}
	if preconditions, err = known.translate(key, preconditions); err != nil {
		return err
	}
	// What is deleted is what was looked at last, so it need not be decoded for the answer.
	var last runtime.Object
	looked := func(ctx context.Context, object runtime.Object) error {
		last = known.renewed(object)
		return validate(ctx, last)
	}
	done := &answer{removal: true}
	c.Decoder.answers.Store(out, done)
	defer c.Decoder.answers.Delete(out)
	if err := c.Storage.Delete(ctx, key, out, preconditions, looked, known.object, options); err != nil {
		return err //nolint:wrapcheck // The registry knows these errors.
	}
	if !isCareful(ctx) {
		last = last.DeepCopyObject()
	}
	v.Set(reflect.ValueOf(last).Elem())
	//nolint:wrapcheck // It cannot fail for objects with metadata.
	return c.versioner.UpdateObject(out, uint64(done.revision))
}

// GuaranteedUpdate implements storage.Interface. It begins with the object in memory.
func (c *Cache) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	if c.renew(ctx, key, out, preconditions, update) {
		return nil
	}
	defer c.writing(key, out)()
	known := c.known(key)
	preconditions, err := known.translate(key, preconditions)
	if err != nil {
		return err
	}
	defer known.encodes(c.Decoder)()
	try := func(input runtime.Object, meta storage.ResponseMeta) (runtime.Object, *uint64, error) {
		current := known.renewed(input)
		if current != input {
			meta.ResourceVersion = known.revision
		}
		// The one in memory is shared; one that is read after a conflict is not.
		if known.object != nil && (current != input || input == known.object) && !isCareful(ctx) {
			current = current.DeepCopyObject()
		}
		return update(current, meta)
	}
	defer c.Decoder.answer(ctx, out)()
	//nolint:wrapcheck // The registry knows these errors.
	return c.Storage.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, try, known.object)
}

// Stats implements storage.Interface.
func (c *Cache) Stats(ctx context.Context) (storage.Stats, error) {
	c.mu.RLock()
	ready, count, bytes := c.ready, int64(c.objects.Count(c.ResourcePrefix, "")), c.bytes
	c.mu.RUnlock()
	if !ready { // the lock is not held: what loads the objects needs it
		return c.Storage.Stats(ctx) //nolint:wrapcheck // It is the library's.
	}
	out := storage.Stats{ObjectCount: count}
	if count > 0 && utilfeature.DefaultFeatureGate.Enabled(features.SizeBasedListCostEstimate) {
		out.EstimatedAverageObjectSizeBytes = bytes / count
	}
	return out, nil
}

// EnableResourceSizeEstimation implements storage.Interface. Sizes are always known here.
func (c *Cache) EnableResourceSizeEstimation(storage.KeysFunc) error { return nil }

// GetCurrentResourceVersion implements storage.Interface.
func (c *Cache) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	return c.Storage.GetCurrentResourceVersion(ctx) //nolint:wrapcheck // It is the library's.
}

// RequestWatchProgress implements storage.Interface.
func (c *Cache) RequestWatchProgress(ctx context.Context) error {
	return c.Database.RequestProgress(ctx)
}

// CompactRevision implements storage.Interface.
func (c *Cache) CompactRevision() int64 { return c.Storage.CompactRevision() }

// ReadinessCheck implements storage.Interface.
func (c *Cache) ReadinessCheck() error {
	if !c.Ready() {
		return storage.ErrStorageNotReady
	}
	return nil
}
