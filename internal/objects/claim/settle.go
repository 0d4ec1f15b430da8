package claim

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/objects/objectversion"
)

// Nobody is the Key of what nothing controls.
const Nobody = "nobody"

// Key is by what an index finds an object: the UID of its controller, or Nobody.
func Key(obj metav1.Object) string {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return string(ref.UID)
	}
	return Nobody
}

// Owner takes objects and lets them go.
type Owner[T metav1.Object] struct {
	Object metav1.Object
	// Kind is how objects refer to the owner.
	Kind     schema.GroupVersionKind
	Selector labels.Selector
	// Finalizers are put on what is adopted, and taken off what is let go.
	Finalizers []string
	// Live reads the owner from the API itself: a cache may not know yet that it is
	// on its way out. It is called at most once, before the first adoption.
	Live func() (metav1.Object, error)
	// Patch sends a strategic merge patch for an object.
	Patch func(obj T, patch []byte) (T, error)
	// Adopted is told of each adopted object as the API then holds it.
	Adopted func(T)
}

// Settle carries out what Judge says of each object, and returns those that are
// the owner's then. Of an object that is there twice, the newest counts: what an owner remembers
// of it may be from before somebody took it away. Objects that vanish meanwhile are nobody's trouble.
func Settle[T metav1.Object](o Owner[T], objects []T) ([]T, error) {
	var mine []T
	asked := false
	for _, obj := range newest(objects) {
		switch Judge(o.Object, o.Selector, obj) {
		case Mine:
			mine = append(mine, obj)
		case Adopt:
			if !asked {
				if err := o.mayAdopt(); err != nil {
					return nil, fmt.Errorf("adopt %s: %w", obj.GetName(), err)
				}
				asked = true
			}
			adopted, err := o.Patch(obj, AdoptPatch(o.Object, o.Kind, obj, o.Finalizers...))
			if vanished(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("adopt %s: %w", obj.GetName(), err)
			}
			o.Adopted(adopted)
			mine = append(mine, adopted)
		case Release:
			if _, err := o.Patch(obj, ReleasePatch(o.Object, obj, o.Finalizers...)); err != nil && !vanished(err) {
				return nil, fmt.Errorf("release %s: %w", obj.GetName(), err)
			}
		}
	}
	return mine, nil
}

// newest leaves of each object the newest version, where the object came first.
func newest[T metav1.Object](objects []T) []T {
	at := make(map[types.UID]int, len(objects))
	out := make([]T, 0, len(objects))
	for _, obj := range objects {
		i, known := at[obj.GetUID()]
		switch {
		case !known:
			at[obj.GetUID()] = len(out)
			out = append(out, obj)
		case objectversion.Older(out[i].GetResourceVersion(), obj.GetResourceVersion()):
			out[i] = obj
		}
	}
	return out
}

func (o Owner[T]) mayAdopt() error {
	live, err := o.Live()
	switch {
	case err != nil:
		return fmt.Errorf("read its future owner: %w", err)
	case live.GetUID() != o.Object.GetUID():
		return fmt.Errorf("original %s %s/%s is gone: got uid %s, wanted %s",
			o.Kind.Kind, live.GetNamespace(), live.GetName(), live.GetUID(), o.Object.GetUID())
	case live.GetDeletionTimestamp() != nil:
		return fmt.Errorf("%s %s/%s has just been deleted at %v",
			o.Kind.Kind, live.GetNamespace(), live.GetName(), live.GetDeletionTimestamp())
	}
	return nil
}

// vanished reports whether a patch with a UID precondition met no such object.
func vanished(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err)
}
