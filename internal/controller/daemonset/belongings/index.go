package belongings

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/objects/objectversion"
)

// index finds objects by what controls them, and those that nothing controls by
// namespace. The objects are the informer's own.
type index[T metav1.Object] struct {
	all     map[types.UID]T
	byOwner map[types.UID]map[types.UID]T
	orphans map[string]map[types.UID]T
}

func newIndex[T metav1.Object]() index[T] {
	return index[T]{all: map[types.UID]T{}, byOwner: map[types.UID]map[types.UID]T{},
		orphans: map[string]map[types.UID]T{}}
}

func (x *index[T]) has(uid types.UID) bool { _, ok := x.all[uid]; return ok }

// put takes a version in, unless a later one is known.
func (x *index[T]) put(obj T) bool {
	uid := obj.GetUID()
	if x.has(uid) && outdated(obj, x.all[uid]) {
		return false
	}
	x.drop(uid)
	x.all[uid] = obj
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		putIn(x.byOwner, ref.UID, uid, obj)
	} else {
		putIn(x.orphans, obj.GetNamespace(), uid, obj)
	}
	return true
}

func (x *index[T]) drop(uid types.UID) {
	if !x.has(uid) {
		return
	}
	obj := x.all[uid]
	delete(x.all, uid)
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		dropFrom(x.byOwner, ref.UID, uid)
	} else {
		dropFrom(x.orphans, obj.GetNamespace(), uid)
	}
}

func putIn[K comparable, V any](m map[K]map[types.UID]V, key K, uid types.UID, v V) {
	if m[key] == nil {
		m[key] = map[types.UID]V{}
	}
	m[key][uid] = v
}

func dropFrom[K comparable, V any](m map[K]map[types.UID]V, key K, uid types.UID) {
	delete(m[key], uid)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// outdated reports whether a is an earlier version of the object than b. Versions
// that cannot be compared count as later, so that nothing is missed.
func outdated(a, b metav1.Object) bool {
	return objectversion.Older(a.GetResourceVersion(), b.GetResourceVersion())
}
