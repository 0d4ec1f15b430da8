package graph

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Identity names one object for good: where it is and which incarnation.
type Identity struct {
	APIVersion string
	Kind       string
	// Namespace is empty for objects of cluster-scoped kinds.
	Namespace string
	Name      string
	UID       types.UID
}

// String is apiVersion/kind, namespace, name and UID in the form used by events.
func (i Identity) String() string {
	return fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", i.APIVersion, i.Kind, i.Namespace, i.Name, i.UID)
}

// Object is what the graph needs to know of an object that exists.
type Object struct {
	Identity
	ResourceVersion string
	// Owners may be shared with the caller's object: the graph only reads it.
	Owners []metav1.OwnerReference
	// Deleting is true once the object has a deletion timestamp.
	Deleting bool
	// Orphan is true while the object carries the finalizer "orphan".
	Orphan bool
	// Foreground is true while the object carries the finalizer "foregroundDeletion".
	Foreground bool
}

// ObjectOf projects an object's metadata. The result shares meta's owner references.
func ObjectOf(apiVersion, kind string, meta metav1.Object) Object {
	o := Object{
		Identity: Identity{
			APIVersion: apiVersion,
			Kind:       kind,
			Namespace:  meta.GetNamespace(),
			Name:       meta.GetName(),
			UID:        meta.GetUID(),
		},
		ResourceVersion: meta.GetResourceVersion(),
		Owners:          meta.GetOwnerReferences(),
		Deleting:        meta.GetDeletionTimestamp() != nil,
	}
	for _, f := range meta.GetFinalizers() {
		switch f {
		case metav1.FinalizerOrphanDependents:
			o.Orphan = true
		case metav1.FinalizerDeleteDependents:
			o.Foreground = true
		}
	}
	return o
}

// Scope reports whether objects of a kind live in namespaces.
type Scope uint8

// The scopes of a kind. ScopeUnknown is a kind that is not served: an owner of
// such a kind can be neither found nor proven absent.
const (
	ScopeUnknown Scope = iota
	ScopeNamespaced
	ScopeCluster
)

// ScopeFunc looks up the scope of a kind. When it has come to answer differently,
// Recheck must be told of the kind.
type ScopeFunc func(apiVersion, kind string) Scope

// ShownFunc looks up in which version the objects of a kind are observed: references
// may name another one that is served as well.
type ShownFunc func(apiVersion, kind string) string

// InvalidReference is an owner reference that leaves the dependent's namespace.
type InvalidReference struct {
	Dependent Identity
	Reference metav1.OwnerReference
}

// Ready lists what may need work since the last call.
type Ready struct {
	// Delete holds objects to Decide about; an object may occur twice.
	Delete []types.UID
	// Orphan holds objects that wait for their dependents to be released.
	Orphan []types.UID
	// Invalid holds references that no object can satisfy, for the user to be told.
	Invalid []InvalidReference
}
