package resource

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/everynode/everynode/internal/apiserver/alike"
)

// Part is how a few fields of a kind's specification are changed that the object itself does not let change.
type Part struct {
	// Keep takes what the part does not change from the old object. Metadata and status are the old ones already.
	Keep func(obj, old runtime.Object)
	// Validate checks the changed object, metadata aside.
	Validate func(obj, old runtime.Object) field.ErrorList
	// Fields are those that it changes.
	Fields fieldpath.Filter
}

// PartREST serves get, update and patch of a part of a specification.
type PartREST struct {
	sub  SubresourceREST
	kind Kind
	part Part
}

var _ rest.Patcher = (*PartREST)(nil)
var _ rest.ResetFieldsFilterStrategy = (*PartREST)(nil)

// NewPart returns the subresource for the part of the kind that s stores.
func (s *Storage) NewPart(part Part) *PartREST {
	store := *s.Store
	base := s.Store.UpdateStrategy.(strategy)
	store.UpdateStrategy = partStrategy{base, part}
	return &PartREST{
		sub:  SubresourceREST{Store: &store, readable: s.Definition.readable()},
		kind: s.Definition.Kind,
		part: part,
	}
}

// New implements rest.Storage.
func (r *PartREST) New() runtime.Object { return r.sub.New() }

// Destroy implements rest.Storage; the main store owns the connection.
func (r *PartREST) Destroy() {}

// Get implements rest.Getter.
func (r *PartREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.sub.Get(ctx, name, options)
}

// Update implements rest.Updater; it never creates.
func (r *PartREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.sub.Update(ctx, name, info, create, update, force, options)
}

// GetResetFieldsFilter implements rest.ResetFieldsFilterStrategy.
func (r *PartREST) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(r.kind.GroupVersion.String()): r.part.Fields}
}

type partStrategy struct {
	strategy
	part Part
}

func (s partStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	now, before := accessor(obj), accessor(old)
	now.SetDeletionTimestamp(before.GetDeletionTimestamp())
	now.SetDeletionGracePeriodSeconds(before.GetDeletionGracePeriodSeconds())
	now.SetLabels(before.GetLabels())
	now.SetAnnotations(before.GetAnnotations())
	now.SetFinalizers(before.GetFinalizers())
	now.SetOwnerReferences(before.GetOwnerReferences())
	assign(s.status(obj), s.status(old))
	s.part.Keep(obj, old)
	now.SetGeneration(before.GetGeneration())
	if !alike.Values(s.spec(obj), s.spec(old)) {
		now.SetGeneration(before.GetGeneration() + 1)
	}
}

func (s partStrategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	s.validateUpdate = func(_ context.Context, obj, old runtime.Object) field.ErrorList {
		return s.part.Validate(obj, old)
	}
	return s.strategy.ValidateUpdate(ctx, obj, old)
}

func (s partStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
