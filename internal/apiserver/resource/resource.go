// Package resource turns the description of an API kind into the storage that
// the generic API server installs.
//
// A Definition is what a kind's own folder under registry/ declares: its names,
// how objects are defaulted, prepared and validated, which fields can be
// selected, and how it prints. Everything that is the same for all kinds
// (metadata validation, status subresource, generations, field selectors) is
// done here, once.
package resource

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Kind names a served kind.
type Kind struct {
	// GroupVersion is the version whose Go type stands for the kind, and in which it is stored.
	GroupVersion schema.GroupVersion
	// OtherVersions serve the same objects. The scheme converts between the versions.
	OtherVersions []schema.GroupVersion
	// Kind is the kind's name, such as "DaemonSet".
	Kind string
	// Plural and Singular are the resource's names in URLs and on the command line.
	Plural, Singular       string
	ShortNames, Categories []string
	// ClusterScoped kinds live outside namespaces.
	ClusterScoped bool
}

// Rules is what a kind does its own way. Every field is optional.
type Rules[T any] struct {
	// Default fills in what the user left out; it runs whenever an object is decoded.
	Default func(*T)
	// Unreadable returns why an object cannot be taken at all. Such a request is a
	// bad one (400), and nothing else is said about it.
	Unreadable func(obj *T) error
	// ValidateName checks metadata.name; a DNS subdomain is the default, and
	// PathSegmentName the other one that Kubernetes has.
	ValidateName validation.ValidateNameFunc

	// Spec returns a pointer to the part whose change raises metadata.generation.
	// Nil means that the kind keeps no generation.
	Spec func(*T) any
	// Status returns a pointer to the status. Nil means that the kind has no
	// status, and so no status subresource.
	Status func(*T) any

	// StatusOnCreate lets a new object bring its status along, as nodes do.
	StatusOnCreate bool

	// PrepareForCreate runs after the status was cleared and the generation set.
	PrepareForCreate func(ctx context.Context, obj *T)
	// PrepareForUpdate runs after the status was carried over from old and the
	// generation was raised if the spec differs.
	PrepareForUpdate func(ctx context.Context, obj, old *T)
	// Validate checks a new object, metadata aside.
	Validate func(ctx context.Context, obj *T) field.ErrorList
	// ValidateUpdate checks a changed object, metadata aside. When nil, Validate is used.
	ValidateUpdate func(ctx context.Context, obj, old *T) field.ErrorList
	// Canonicalize brings a valid object into its stored form.
	Canonicalize     func(obj *T)
	WarningsOnCreate func(ctx context.Context, obj *T) []string
	WarningsOnUpdate func(ctx context.Context, obj, old *T) []string

	// PrepareStatusForUpdate runs after the spec was carried over from old.
	PrepareStatusForUpdate func(ctx context.Context, obj, old *T)
	// ValidateStatusUpdate checks a status written through /status.
	ValidateStatusUpdate func(ctx context.Context, obj, old *T) field.ErrorList
	// StatusResetFields are the top-level paths that /status ignores, "spec" by default.
	StatusResetFields []string

	// AllowCreateOnUpdate lets a PUT of a missing name create it.
	AllowCreateOnUpdate bool
	// RequireResourceVersion refuses a PUT without a resourceVersion.
	RequireResourceVersion bool
	// GracefulDelete sets the grace period of a deletion in options and reports
	// whether the object stays until that has passed.
	GracefulDelete func(ctx context.Context, obj *T, options *metav1.DeleteOptions) bool
	// ReturnDeletedObject answers a DELETE with the object instead of a Status.
	ReturnDeletedObject bool
	// OrphanDependents keeps dependents by default when an object is deleted.
	OrphanDependents bool
	// DeleteDuringUpdate must agree, where it is set, before an update lets a deleted
	// object without finalizers vanish.
	DeleteDuringUpdate func(obj, old *T) bool
	// TTL is the time to live in seconds that storage gives an object, 0 for ever.
	TTL func(obj *T) uint64

	// Fields returns the values of the selectable fields besides metadata.name
	// and metadata.namespace. FieldLabels are their names, including aliases
	// that FieldAlias maps to a stored name.
	Fields      func(obj *T) fields.Set
	FieldLabels []string
	FieldAlias  map[string]string
	// IndexedFields are the selectable fields that get an index in the watch
	// cache, such as spec.nodeName of pods.
	IndexedFields []string

	// Table prints the kind; nil prints NAME and AGE.
	Table rest.TableConvertor
}

// Definition is a kind ready to be built, with the Go type erased.
type Definition struct {
	Kind
	New, NewList func() runtime.Object
	// Default is nil for kinds that have no defaults.
	Default     func(runtime.Object)
	FieldLabels []string
	FieldAlias  map[string]string

	rules   untyped
	indexed []string
	table   rest.TableConvertor
}

// KeptFor returns the kind with another time to live, whatever its rules say.
func (d Definition) KeptFor(lifetime time.Duration) Definition {
	d.rules.ttl = func(runtime.Object) uint64 { return uint64(lifetime / time.Second) }
	return d
}

// GroupVersionResource returns the kind's resource.
func (d Definition) GroupVersionResource() schema.GroupVersionResource {
	return d.GroupVersion.WithResource(d.Plural)
}

// GroupVersionKind returns the kind's full name.
func (d Definition) GroupVersionKind() schema.GroupVersionKind {
	return d.GroupVersion.WithKind(d.Kind.Kind)
}

// HasStatus says whether the kind has a status subresource.
func (d Definition) HasStatus() bool { return d.rules.status != nil }

// object ties a pointer type to its struct, so that Of can make new ones.
type object[T any] interface {
	*T
	runtime.Object
}

// Of describes the kind whose objects are T and whose lists are L.
func Of[T, L any, PT object[T], PL object[L]](kind Kind, r Rules[T]) Definition {
	d := Definition{
		Kind:        kind,
		New:         func() runtime.Object { return PT(new(T)) },
		NewList:     func() runtime.Object { return PL(new(L)) },
		FieldLabels: r.FieldLabels,
		FieldAlias:  r.FieldAlias,
		rules:       erase[T, PT](r),
		indexed:     r.IndexedFields,
		table:       r.Table,
	}
	if r.Default != nil {
		d.Default = func(o runtime.Object) { r.Default(o.(PT)) }
	}
	return d
}
