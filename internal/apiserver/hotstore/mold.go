package hotstore

import (
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// moldsKept is of how many owners and templates a mold is kept.
const moldsKept = 512

// molds let objects share what they have in common: with their version before, and with
// the first one that was made from the same template.
type molds struct {
	mu   sync.Mutex // guards all below
	kept map[mold]runtime.Object
}

// mold is what objects have in common that are made alike. Those that no controller made, as nodes and their leases,
// are all of one: of many machines most is the same.
type mold struct {
	owner    types.UID
	template string
}

// templateLabels say which template an object was made from.
var templateLabels = []string{"controller-revision-hash", "pod-template-hash"}

func moldOf(m metav1.Object) (out mold, ok bool) {
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil {
		return out, true
	}
	out.owner = owner.UID
	for _, label := range templateLabels {
		if hash := m.GetLabels()[label]; hash != "" {
			out.template = hash
			return out, true
		}
	}
	return out, false
}

// fit lets an object that nobody else knows yet share with what is known.
func (ms *molds) fit(object, before runtime.Object) {
	if before != nil {
		share(reflect.ValueOf(object).Elem(), reflect.ValueOf(before).Elem())
		return
	}
	m, ok := object.(metav1.Object)
	if !ok {
		return
	}
	of, ok := moldOf(m)
	if !ok {
		return
	}
	ms.mu.Lock()
	first := ms.kept[of]
	if first == nil {
		if ms.kept == nil || len(ms.kept) >= moldsKept {
			ms.kept = map[mold]runtime.Object{} // The next ones are molds again.
		}
		ms.kept[of] = object
	}
	ms.mu.Unlock()
	if first != nil {
		share(reflect.ValueOf(object).Elem(), reflect.ValueOf(first).Elem())
	}
}

// share makes equal parts of two values the same memory: that of the old one, which
// nobody changes any more.
func share(fresh, old reflect.Value) {
	switch fresh.Kind() {
	case reflect.Struct:
		for i := range fresh.NumField() {
			if fresh.Type().Field(i).IsExported() {
				share(fresh.Field(i), old.Field(i))
			}
		}
	case reflect.String:
		if fresh.Len() > 0 && fresh.String() == old.String() {
			fresh.Set(old)
		}
	case reflect.Pointer:
		sharePointer(fresh, old)
	case reflect.Slice:
		shareSlice(fresh, old)
	case reflect.Map:
		if fresh.Len() > 0 && fresh.Len() == old.Len() && equal(fresh, old) {
			fresh.Set(old)
		}
	}
}

func sharePointer(fresh, old reflect.Value) {
	switch {
	case fresh.IsNil() || old.IsNil():
	case equal(fresh, old):
		fresh.Set(old)
	default:
		share(fresh.Elem(), old.Elem())
	}
}

func shareSlice(fresh, old reflect.Value) {
	if fresh.Len() == 0 || old.Len() == 0 {
		return
	}
	if fresh.Len() == old.Len() && equal(fresh, old) {
		fresh.Set(old.Slice3(0, old.Len(), old.Len())) // Who appends, copies.
		return
	}
	if k := fresh.Type().Elem().Kind(); k != reflect.Struct && k != reflect.Pointer && k != reflect.String {
		return
	}
	for i := range min(fresh.Len(), old.Len()) {
		share(fresh.Index(i), old.Index(i))
	}
}

func equal(a, b reflect.Value) bool { return reflect.DeepEqual(a.Interface(), b.Interface()) }
