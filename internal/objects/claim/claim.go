// Package claim decides whose an object is: what an owner with a selector does
// about an object of its namespace that something controls, or nothing does.
package claim

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Verdict is what an owner does about an object.
type Verdict uint8

// The verdicts.
const (
	NotMine Verdict = iota // leave it alone
	Mine                   // it is controlled by the owner and matches
	Adopt                  // it has no controller and matches: take it
	Release                // it is controlled by the owner and does not match: let it go
)

// Judge decides about one object. An owner that is being deleted neither takes
// nor lets go; an object that is being deleted is not taken.
func Judge(owner metav1.Object, selector labels.Selector, obj metav1.Object) Verdict {
	ref := metav1.GetControllerOfNoCopy(obj)
	matches := selector.Matches(labels.Set(obj.GetLabels()))
	switch {
	case ref != nil && ref.UID != owner.GetUID():
		return NotMine
	case ref != nil && matches:
		return Mine
	case ref != nil && owner.GetDeletionTimestamp() == nil:
		return Release
	case ref == nil && matches && owner.GetDeletionTimestamp() == nil && obj.GetDeletionTimestamp() == nil:
		return Adopt
	}
	return NotMine
}

// Selects reports whether an owner's selector matches an object. One that is
// invalid or empty matches nothing.
func Selects(s *metav1.LabelSelector, obj metav1.Object) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(obj.GetLabels()))
}

// AdoptPatch is the strategic merge patch that makes the owner, which is of the
// given kind, the controller of the object. The UID in it is a precondition. The
// finalizers are added.
func AdoptPatch(owner metav1.Object, kind schema.GroupVersionKind, obj metav1.Object, finalizers ...string) []byte {
	return patch(obj, []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}, "finalizers", finalizers)
}

// ReleasePatch is the strategic merge patch that takes the owner off the owners
// of the object. The UID in it is a precondition. The finalizers are taken off too.
func ReleasePatch(owner, obj metav1.Object, finalizers ...string) []byte {
	return patch(obj, []any{map[string]any{"$patch": "delete", "uid": owner.GetUID()}},
		"$deleteFromPrimitiveList/finalizers", finalizers)
}

func patch(obj metav1.Object, references any, key string, finalizers []string) []byte {
	metadata := map[string]any{"uid": obj.GetUID(), "ownerReferences": references}
	if len(finalizers) > 0 {
		metadata[key] = finalizers
	}
	b, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic("claim: owner references do not marshal: " + err.Error())
	}
	return b
}
