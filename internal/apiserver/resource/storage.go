package resource

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Storage is a built kind. Main serves the resource itself and may be replaced
// by a wrapper; Subresources are keyed by their last path element.
type Storage struct {
	Definition   Definition
	Store        *genericregistry.Store
	StatusStore  *genericregistry.Store
	Main         rest.Storage
	Subresources map[string]rest.Storage
}

// Paths returns the storages by resource path, such as "pods" and "pods/status".
func (s *Storage) Paths() map[string]rest.Storage {
	out := map[string]rest.Storage{s.Definition.Plural: s.Main}
	for name, sub := range s.Subresources {
		out[s.Definition.Plural+"/"+name] = sub
	}
	return out
}

// Build makes the storage of the kind with etcd access from getter. typer knows
// the kind's Go type.
func (d Definition) Build(typer runtime.ObjectTyper, getter generic.RESTOptionsGetter) (*Storage, error) {
	base := strategy{ObjectTyper: typer, NameGenerator: names.SimpleNameGenerator, kind: d.Kind, untyped: d.rules}
	var deletion rest.RESTDeleteStrategy = base
	if d.rules.graceful != nil {
		deletion = gracefulStrategy{base}
	}
	resource := d.GroupVersionResource().GroupResource()
	printer := d.table
	if printer == nil {
		printer = rest.NewDefaultTableConvertor(resource)
	}
	store := &genericregistry.Store{
		NewFunc: d.New, NewListFunc: d.NewList,
		DefaultQualifiedResource:  resource,
		SingularQualifiedResource: d.GroupVersion.WithResource(d.Singular).GroupResource(),
		CreateStrategy:            base, UpdateStrategy: base, DeleteStrategy: deletion, ResetFieldsStrategy: base,
		TableConvertor:      printer,
		ReturnDeletedObject: d.rules.returnDeleted,
	}
	if f := d.rules.deleteDuringUpdate; f != nil {
		store.ShouldDeleteDuringUpdate = func(ctx context.Context, key string, obj, existing runtime.Object) bool {
			return genericregistry.ShouldDeleteDuringUpdate(ctx, key, obj, existing) && f(obj, existing)
		}
	}
	if f := d.rules.ttl; f != nil {
		store.TTLFunc = func(obj runtime.Object, _ uint64, _ bool) (uint64, error) { return f(obj), nil }
	}
	indexers, triggers := d.indexes()
	options := &generic.StoreOptions{
		RESTOptions: getter,
		AttrFunc:    d.attributes,
		Indexers:    indexers,
		TriggerFunc: triggers,
	}
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, fmt.Errorf("build storage of %s: %w", resource, err)
	}
	main := &REST{
		Store: store, readable: d.readable(), kind: d.Kind,
		// Kinds whose deletion answers with something else, or adds a finalizer, have no last step that is one write.
		graceful: d.rules.graceful != nil && d.rules.returnDeleted && !d.rules.orphanDependents,
	}
	out := &Storage{Definition: d, Store: store, Main: main, Subresources: map[string]rest.Storage{}}
	if d.rules.status != nil {
		status := *store
		status.UpdateStrategy, status.ResetFieldsStrategy = statusStrategy{base}, statusStrategy{base}
		out.StatusStore = &status
		out.Subresources["status"] = &SubresourceREST{Store: &status, readable: d.readable()}
	}
	return out, nil
}

func (d Definition) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	m := accessor(obj)
	set := fields.Set{"metadata.name": m.GetName()}
	if !d.ClusterScoped {
		set["metadata.namespace"] = m.GetNamespace()
	}
	if d.rules.fields != nil {
		for k, v := range d.rules.fields(obj) {
			set[k] = v
		}
	}
	return m.GetLabels(), set, nil
}

func (d Definition) indexes() (*cache.Indexers, storage.IndexerFuncs) {
	if len(d.indexed) == 0 {
		return nil, nil
	}
	indexers, triggers := cache.Indexers{}, storage.IndexerFuncs{}
	for _, name := range d.indexed {
		value := func(obj runtime.Object) string { return d.rules.fields(obj)[name] }
		triggers[name] = value
		indexers[storage.FieldIndex(name)] = func(obj any) ([]string, error) {
			return []string{value(obj.(runtime.Object))}, nil
		}
	}
	return &indexers, triggers
}

// REST serves the main resource with its short names and categories.
type REST struct {
	*genericregistry.Store
	readable readable
	kind     Kind
	graceful bool
}

// Create implements rest.Creater.
func (r *REST) Create(
	ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	if err := r.readable.check(obj); err != nil {
		return nil, err
	}
	created, err := r.Store.Create(ctx, obj, validate, options)
	return created, judged(err)
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, force bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	obj, created, err := r.Store.Update(ctx, name, BlameRequest(r.readable.checked(info)), create, update, force, options)
	return obj, created, judged(err)
}

// renewer is a storage that knows which writes say only that somebody is alive.
type renewer interface {
	Renew(key string, next runtime.Object) runtime.Object
}

// Renew stores obj over the object that exists if it is the same but for saying that somebody
// is alive, and returns what is stored then; nil if it is not, or where that makes no
// difference. Nothing is prepared or validated.
func (r *REST) Renew(ctx context.Context, name string, obj runtime.Object) runtime.Object {
	storage, ok := r.Storage.Storage.(renewer)
	if !ok {
		return nil
	}
	key, err := r.KeyFunc(ctx, name)
	if err != nil {
		return nil
	}
	return storage.Renew(key, obj)
}

// ShortNames implements rest.ShortNamesProvider.
func (r *REST) ShortNames() []string { return r.kind.ShortNames }

// Categories implements rest.CategoriesProvider.
func (r *REST) Categories() []string { return r.kind.Categories }

// SubresourceREST serves get, update and patch of a part of an object, such as
// its status, by a copy of the main store with another update strategy.
type SubresourceREST struct {
	Store    *genericregistry.Store
	readable readable
}

// New implements rest.Storage.
func (r *SubresourceREST) New() runtime.Object { return r.Store.New() }

// Destroy implements rest.Storage; the main store owns the connection.
func (r *SubresourceREST) Destroy() {}

// Get implements rest.Getter.
func (r *SubresourceREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.Store.Get(ctx, name, options)
}

// Update implements rest.Updater; it never creates.
func (r *SubresourceREST) Update(
	ctx context.Context,
	name string,
	info rest.UpdatedObjectInfo,
	create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc,
	_ bool,
	options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	obj, created, err := r.Store.Update(ctx, name, BlameRequest(r.readable.checked(info)), create, update, false, options)
	return obj, created, judged(err)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (r *SubresourceREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.Store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (r *SubresourceREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.Store.ConvertToTable(ctx, obj, options)
}
