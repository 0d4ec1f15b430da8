// Package molds lets objects of the API that are held in memory share what they have in common. Pure.
package molds

import (
	"maps"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// moldsKept is of how many owners and templates a mold is kept.
const moldsKept = 512

// Molds let objects share what they have in common: with their version before, and with
// the first one that was made from the same template. The zero value is ready.
type Molds struct {
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

// Fit lets an object that nobody else knows yet share with what is known.
func (ms *Molds) Fit(object, before runtime.Object) {
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
// nobody changes any more. It reports whether both are equal, as reflect.DeepEqual has it.
func share(fresh, old reflect.Value) (equal bool) {
	switch fresh.Kind() {
	case reflect.Struct:
		return shareStruct(fresh, old)
	case reflect.String:
		equal = fresh.String() == old.String()
		if equal && fresh.Len() > 0 {
			fresh.Set(old)
		}
		return equal
	case reflect.Pointer:
		if fresh.IsNil() || old.IsNil() {
			return fresh.IsNil() && old.IsNil()
		}
		equal = share(fresh.Elem(), old.Elem())
		if equal {
			fresh.Set(old)
		}
		return equal
	case reflect.Slice:
		return shareSlice(fresh, old)
	case reflect.Map:
		equal = same(fresh, old)
		if equal && fresh.Len() > 0 {
			fresh.Set(old)
		}
		return equal
	}
	return same(fresh, old)
}

func shareStruct(fresh, old reflect.Value) (equal bool) {
	equal = true
	for i, exported := range fieldsOf(fresh.Type()) {
		if f, o := fresh.Field(i), old.Field(i); exported {
			equal = share(f, o) && equal
		} else {
			equal = equal && same(f, o)
		}
	}
	return equal
}

func shareSlice(fresh, old reflect.Value) (equal bool) {
	if fresh.Len() == 0 || old.Len() == 0 {
		return fresh.Len() == old.Len() && fresh.IsNil() == old.IsNil()
	}
	equal = fresh.Len() == old.Len()
	if k := fresh.Type().Elem().Kind(); k == reflect.Struct || k == reflect.Pointer || k == reflect.String {
		for i := range min(fresh.Len(), old.Len()) {
			equal = share(fresh.Index(i), old.Index(i)) && equal
		}
	} else {
		equal = equal && same(fresh, old)
	}
	if equal {
		fresh.Set(old.Slice3(0, old.Len(), old.Len())) // Who appends, copies.
	}
	return equal
}

// same is reflect.DeepEqual of values that do not contain themselves.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		return a.Pointer() == b.Pointer() || !a.IsNil() && !b.IsNil() && same(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() || a.IsNil() != b.IsNil() {
			return false
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		return sameMap(a, b)
	}
	return a.Equal(b)
}

func sameMap(a, b reflect.Value) bool {
	switch {
	case a.Len() != b.Len() || a.IsNil() != b.IsNil():
		return false
	case a.Pointer() == b.Pointer():
		return true
	case a.CanInterface():
		if labels, ok := a.Interface().(map[string]string); ok {
			return maps.Equal(labels, b.Interface().(map[string]string))
		}
	}
	for each := a.MapRange(); each.Next(); {
		other := b.MapIndex(each.Key())
		if !other.IsValid() || !same(each.Value(), other) {
			return false
		}
	}
	return true
}

// exported says of the fields of a type whether they are; reflection makes something of each that it is asked about.
var exported sync.Map // of reflect.Type, []bool

func fieldsOf(t reflect.Type) []bool {
	known, ok := exported.Load(t)
	if !ok {
		fields := make([]bool, t.NumField())
		for i := range fields {
			fields[i] = t.Field(i).IsExported()
		}
		known, _ = exported.LoadOrStore(t, fields)
	}
	return known.([]bool)
}
