package resource

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/alike"
)

// PathSegmentName checks a name, or with prefix the beginning of one, of which
// only a part of a URL's path is asked.
func PathSegmentName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// strategy serves create, update and delete of the main resource.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	kind Kind
	untyped
}

var _ rest.RESTCreateStrategy = strategy{}
var _ rest.RESTUpdateStrategy = strategy{}
var _ rest.GarbageCollectionDeleteStrategy = strategy{}

func (s strategy) NamespaceScoped() bool { return !s.kind.ClusterScoped }

func (s strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	if s.orphanDependents {
		return rest.OrphanDependents
	}
	return rest.DeleteDependents
}

func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	if s.status != nil && !s.statusOnCreate {
		reflect.ValueOf(s.status(obj)).Elem().SetZero()
	}
	if s.spec != nil {
		accessor(obj).SetGeneration(1)
	}
	if s.prepareCreate != nil {
		s.prepareCreate(ctx, obj)
	}
}

func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	name := s.validateName
	if name == nil {
		name = validation.NameIsDNSSubdomain
	}
	errs := validation.ValidateObjectMetaAccessor(accessor(obj), s.NamespaceScoped(), name, metadataPath)
	errs = append(errs, finalizersOf(accessor(obj))...)
	errs = append(errs, s.loses(obj, obj)...)
	if s.validate != nil {
		errs = append(errs, s.validate(ctx, obj)...)
	}
	return few(errs)
}

func (s strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	if s.warnCreate == nil {
		return nil
	}
	return s.warnCreate(ctx, obj)
}

func (s strategy) Canonicalize(obj runtime.Object) {
	if s.canonicalize != nil {
		s.canonicalize(obj)
	}
}

func (s strategy) AllowCreateOnUpdate(context.Context) bool      { return s.allowCreateOnUpdate }
func (s strategy) AllowUnconditionalUpdate(context.Context) bool { return !s.requireResourceVersion }

func (s strategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	if s.status != nil {
		assign(s.status(obj), s.status(old))
	}
	if s.spec != nil {
		now, before := accessor(obj), accessor(old)
		now.SetGeneration(before.GetGeneration())
		if !alike.Values(s.spec(obj), s.spec(old)) ||
			now.GetDeletionTimestamp() != nil && before.GetDeletionTimestamp() == nil {
			now.SetGeneration(before.GetGeneration() + 1)
		}
	}
	if s.prepareUpdate != nil {
		s.prepareUpdate(ctx, obj, old)
	}
}

func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessorUpdate(accessor(obj), accessor(old), metadataPath)
	errs = append(errs, finalizersOf(accessor(obj))...)
	errs = append(errs, s.loses(obj, old)...)
	switch {
	case s.validateUpdate != nil:
		errs = append(errs, s.validateUpdate(ctx, obj, old)...)
	case s.validate != nil:
		errs = append(errs, s.validate(ctx, obj)...)
	}
	return few(errs)
}

func (s strategy) WarningsOnUpdate(ctx context.Context, obj, old runtime.Object) []string {
	if s.warnUpdate == nil {
		return nil
	}
	return s.warnUpdate(ctx, obj, old)
}

// loses refuses a write of an object of our own kinds that would lose fields which only a newer server knows. The last
// finalizer of an object that is being deleted may go: there is nothing left to lose.
func (s strategy) loses(obj, old runtime.Object) field.ErrorList {
	now := accessor(obj)
	fields := cmp.Or(newer.Fields(now), newer.Fields(accessor(old)))
	ends := now.GetDeletionTimestamp() != nil && len(now.GetFinalizers()) == 0
	if s.kind.GroupVersion.Group != v1alpha1.GroupVersion.Group || fields == "" || newer.Dropped(now) || ends {
		return nil
	}
	return field.ErrorList{newer.Refusal(fields)}
}

// GetResetFields implements rest.ResetFieldsStrategy for server-side apply.
func (s strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if s.status == nil {
		return nil
	}
	return resetFields(s.kind, "status")
}

// gracefulStrategy is a strategy whose objects may outlive their deletion.
type gracefulStrategy struct{ strategy }

var _ rest.RESTGracefulDeleteStrategy = gracefulStrategy{}

func (s gracefulStrategy) CheckGracefulDelete(ctx context.Context, obj runtime.Object,
	options *metav1.DeleteOptions) bool {
	if asked, ok := ctx.Value(askedKey{}).(*int64); ok {
		options.GracePeriodSeconds = asked
	}
	return s.graceful(ctx, obj, options)
}

// statusStrategy serves the status subresource: only the status can change.
type statusStrategy struct{ strategy }

func (s statusStrategy) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	if s.spec != nil {
		assign(s.spec(obj), s.spec(old))
		accessor(obj).SetGeneration(accessor(old).GetGeneration())
	}
	now, before := accessor(obj), accessor(old)
	now.SetOwnerReferences(before.GetOwnerReferences())
	if s.prepareStatus != nil {
		s.prepareStatus(ctx, obj, old)
	}
}

func (s statusStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	errs := validation.ValidateObjectMetaAccessorUpdate(accessor(obj), accessor(old), metadataPath)
	errs = append(errs, finalizersOf(accessor(obj))...)
	errs = append(errs, s.loses(obj, old)...)
	if s.validateStatus != nil {
		errs = append(errs, s.validateStatus(ctx, obj, old)...)
	}
	return few(errs)
}

func (s statusStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

func (s statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if len(s.statusResetFields) > 0 {
		return resetFields(s.kind, s.statusResetFields...)
	}
	return resetFields(s.kind, "spec")
}

func resetFields(kind Kind, top ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	paths := make([]fieldpath.Path, 0, len(top))
	for _, t := range top {
		paths = append(paths, fieldpath.MakePathOrDie(t))
	}
	out := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range append([]schema.GroupVersion{kind.GroupVersion}, kind.OtherVersions...) {
		out[fieldpath.APIVersion(version.String())] = fieldpath.NewSet(paths...)
	}
	return out
}

// accessor returns the object's metadata; every served kind has it.
func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	return m
}

var (
	metadataPath       = field.NewPath("metadata")
	standardFinalizers = []string{
		string(corev1.FinalizerKubernetes),
		metav1.FinalizerOrphanDependents,
		metav1.FinalizerDeleteDependents,
	}
)

// finalizersOf refuses finalizers that do not tell whose they are.
func finalizersOf(m metav1.Object) (errs field.ErrorList) {
	for i, name := range m.GetFinalizers() {
		if !strings.Contains(name, "/") && !slices.Contains(standardFinalizers, name) {
			errs = append(errs, field.Invalid(
				metadataPath.Child("finalizers").Index(i), name,
				"name is neither a standard finalizer name nor is it fully qualified",
			))
		}
	}
	return errs
}

// assign copies what src points to over what dst points to.
func assign(dst, src any) { reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src).Elem()) }
