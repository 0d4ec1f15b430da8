package resource

import (
	"context"
	"errors"
	"fmt"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/utils/ptr"
)

// errNotLeaving is what the storage answers when an object cannot go in one write.
var errNotLeaving = errors.New("object is not marked as being deleted, or has finalizers")

// Delete implements rest.GracefulDeleter.
//
// The last step of a graceful deletion, when a node says that a pod has ended, is one write. The library's way reads
// the object, writes a grace period of 0 into it, and deletes it then, which fails first because its cache has not seen
// the write. All other deletions go the library's way.
func (r *REST) Delete(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, bool, error) {
	if r.graceful && isLastStep(options) {
		if out, err := r.remove(ctx, name, validate, options); !errors.Is(err, errNotLeaving) {
			return out, err == nil, err
		}
	}
	if r.graceful && options != nil {
		validate = asAsked(options, validate)
	}
	return r.Store.Delete(ctx, name, validate, options)
}

// asAsked puts back the grace period that was asked for before an object is looked at. The library writes what it
// decides into the options; when it begins with an older object of the same name from its cache, such as a pod that had
// ended, and looks again at the present one, that one would go without its grace.
func asAsked(options *metav1.DeleteOptions, validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	asked := options.GracePeriodSeconds
	return func(ctx context.Context, obj runtime.Object) error {
		options.GracePeriodSeconds = asked
		return validate(ctx, obj)
	}
}

// DeleteCollection implements rest.CollectionDeleter. The library deletes each object with options of its own, out of
// reach for asAsked; here the strategy puts back what was asked for.
func (r *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *metainternalversion.ListOptions) (runtime.Object, error) {
	if r.graceful && options != nil {
		ctx = context.WithValue(ctx, askedKey{}, options.GracePeriodSeconds)
	}
	return r.Store.DeleteCollection(ctx, validate, options, list)
}

// askedKey is for the grace period with which objects are deleted together.
type askedKey struct{}

// isLastStep recognises options that ask for nothing but the end, now.
func isLastStep(o *metav1.DeleteOptions) bool {
	return o != nil && ptr.Equal(o.GracePeriodSeconds, ptr.To[int64](0)) && o.PropagationPolicy == nil &&
		len(o.DryRun) == 0 &&
		o.OrphanDependents == nil && //nolint:staticcheck // Old clients send it.
		o.IgnoreStoreReadErrorWithClusterBreakingPotential == nil
}

// remove deletes an object that is being deleted already and that nothing holds. That it is so is checked with the
// write itself. What it cannot delete, or not find, is errNotLeaving.
func (r *REST) remove(
	ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
) (runtime.Object, error) {
	key, err := r.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	var expected storage.Preconditions
	if p := options.Preconditions; p != nil {
		expected = storage.Preconditions{UID: p.UID, ResourceVersion: p.ResourceVersion}
	}
	check := func(ctx context.Context, obj runtime.Object) error {
		if m := accessor(obj); m.GetDeletionTimestamp() == nil || len(m.GetFinalizers()) > 0 {
			return errNotLeaving
		}
		return validate(ctx, obj)
	}
	out := r.New()
	err = r.Storage.Delete(ctx, key, out, &expected, check, false, nil, storage.DeleteOptions{})
	switch {
	case err == nil:
		asEnded(accessor(out), time.Now())
		return out, nil
	case storage.IsNotFound(err), storage.IsInvalidObj(err):
		return nil, fmt.Errorf("%w: %w", errNotLeaving, err)
	case errors.Is(err, errNotLeaving):
		return nil, err
	}
	return nil, storeerr.InterpretDeleteError(err, r.DefaultQualifiedResource, name)
}

// asEnded gives the answer the form that it has after the write of a grace period of 0.
func asEnded(m metav1.Object, now time.Time) {
	grace := ptr.Deref(m.GetDeletionGracePeriodSeconds(), 0)
	if grace == 0 {
		return
	}
	end := m.GetDeletionTimestamp().Add(-time.Duration(grace) * time.Second)
	if end.Before(now) {
		end = now
	}
	m.SetDeletionTimestamp(&metav1.Time{Time: end})
	m.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
}
