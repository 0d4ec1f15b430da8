package resource

import (
	"context"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// untyped is Rules for runtime.Object, so that one strategy type serves every kind.
type untyped struct {
	unreadable             func(runtime.Object) error
	validateName           validation.ValidateNameFunc
	spec, status           func(runtime.Object) any
	prepareCreate          func(context.Context, runtime.Object)
	prepareUpdate          func(_ context.Context, obj, old runtime.Object)
	validate               func(context.Context, runtime.Object) field.ErrorList
	validateUpdate         func(_ context.Context, obj, old runtime.Object) field.ErrorList
	canonicalize           func(runtime.Object)
	warnCreate             func(context.Context, runtime.Object) []string
	warnUpdate             func(_ context.Context, obj, old runtime.Object) []string
	prepareStatus          func(_ context.Context, obj, old runtime.Object)
	validateStatus         func(_ context.Context, obj, old runtime.Object) field.ErrorList
	statusResetFields      []string
	statusOnCreate         bool
	allowCreateOnUpdate    bool
	requireResourceVersion bool
	graceful               func(context.Context, runtime.Object, *metav1.DeleteOptions) bool
	returnDeleted          bool
	orphanDependents       bool
	deleteDuringUpdate     func(obj, old runtime.Object) bool
	ttl                    func(runtime.Object) uint64
	fields                 func(runtime.Object) fields.Set
}

func erase[T any, PT object[T]](r Rules[T]) untyped {
	u := untyped{
		validateName: r.ValidateName, statusResetFields: r.StatusResetFields,
		statusOnCreate: r.StatusOnCreate, allowCreateOnUpdate: r.AllowCreateOnUpdate,
		requireResourceVersion: r.RequireResourceVersion,
		returnDeleted:          r.ReturnDeletedObject, orphanDependents: r.OrphanDependents,
		unreadable: one[T, PT](r.Unreadable), spec: one[T, PT](r.Spec), status: one[T, PT](r.Status),
		fields: one[T, PT](r.Fields), ttl: one[T, PT](r.TTL),
		validate: withContext[T, PT](r.Validate), warnCreate: withContext[T, PT](r.WarningsOnCreate),
		validateUpdate: pair[T, PT](r.ValidateUpdate), warnUpdate: pair[T, PT](r.WarningsOnUpdate),
		validateStatus: pair[T, PT](r.ValidateStatusUpdate),
		prepareUpdate:  change[T, PT](r.PrepareForUpdate), prepareStatus: change[T, PT](r.PrepareStatusForUpdate),
	}
	if f := r.PrepareForCreate; f != nil {
		u.prepareCreate = func(ctx context.Context, o runtime.Object) { f(ctx, o.(PT)) }
	}
	if f := r.Canonicalize; f != nil {
		u.canonicalize = func(o runtime.Object) { f(o.(PT)) }
	}
	if f := r.GracefulDelete; f != nil {
		u.graceful = func(ctx context.Context, o runtime.Object, opts *metav1.DeleteOptions) bool {
			return f(ctx, o.(PT), opts)
		}
	}
	if f := r.DeleteDuringUpdate; f != nil {
		u.deleteDuringUpdate = func(obj, old runtime.Object) bool { return f(obj.(PT), old.(PT)) }
	}
	return u
}

func one[T any, PT object[T], R any](f func(*T) R) func(runtime.Object) R {
	if f == nil {
		return nil
	}
	return func(o runtime.Object) R { return f(o.(PT)) }
}

func withContext[T any, PT object[T], R any](f func(context.Context, *T) R) func(context.Context, runtime.Object) R {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, o runtime.Object) R { return f(ctx, o.(PT)) }
}

func pair[T any, PT object[T], R any](f func(_ context.Context, obj, old *T) R) func(
	_ context.Context, obj, old runtime.Object,
) R {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old runtime.Object) R { return f(ctx, obj.(PT), old.(PT)) }
}

func change[T any, PT object[T]](f func(_ context.Context, obj, old *T)) func(
	_ context.Context, obj, old runtime.Object,
) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old runtime.Object) { f(ctx, obj.(PT), old.(PT)) }
}
