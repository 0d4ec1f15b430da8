// Package alike says whether two values of the API are the same, as apiequality.Semantic.DeepEqual has it, at a
// fraction of its cost: that one notes down each struct and list that it has compared, in case a value contains
// itself. No value that came from a client does. Pure.
package alike

import (
	"bytes"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Unchanged refuses another value of a field that nobody may change, as validation.ValidateImmutableField does.
func Unchanged(now, old any, path *field.Path) field.ErrorList {
	if Values(old, now) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, now, validation.FieldImmutableErrorMsg)}
}

// Values reports whether two values of one type are the same. A list or map that is empty is the same as none, 1Ki and
// 1024 are the same quantity, and a time is the same in each zone. Values of two types are not the same. A value
// that contains itself is not allowed.
func Values(a, b any) bool {
	if a == nil || b == nil {
		return a == b
	}
	return values(reflect.ValueOf(a), reflect.ValueOf(b))
}

// special are the types that have a rule of their own, where they are not compared field by field.
var special = map[reflect.Type]func(a, b reflect.Value) bool{
	reflect.TypeFor[resource.Quantity](): by(func(a, b *resource.Quantity) bool { return a.Cmp(*b) == 0 }),
	reflect.TypeFor[metav1.Time]():       by(func(a, b *metav1.Time) bool { return a.UTC() == b.UTC() }),
	reflect.TypeFor[metav1.MicroTime]():  by(func(a, b *metav1.MicroTime) bool { return a.UTC() == b.UTC() }),
	reflect.TypeFor[metav1.FieldsV1]():   by(func(a, b *metav1.FieldsV1) bool { return a.Equal(*b) }),
}

// plain are the types of maps that may be long. Reflection copies each value, which costs more than the comparison.
var plain = map[reflect.Type]func(a, b reflect.Value) bool{
	reflect.TypeFor[map[string]string](): entries[map[string]string](func(a, b string) bool { return a == b }),
	reflect.TypeFor[map[string][]byte](): entries[map[string][]byte](bytes.Equal),
	reflect.TypeFor[corev1.ResourceList](): entries[corev1.ResourceList](func(a, b resource.Quantity) bool {
		return a.Cmp(b) == 0
	}),
}

// entries compares maps of one type with as many entries.
func entries[M ~map[K]V, K comparable, V any](same func(a, b V) bool) func(a, b reflect.Value) bool {
	return by(func(a, b *M) bool {
		for key, value := range *a {
			other, ok := (*b)[key]
			if !ok || !same(value, other) {
				return false
			}
		}
		return true
	})
}

func by[T any](rule func(a, b *T) bool) func(a, b reflect.Value) bool {
	at := func(v reflect.Value) *T {
		if v.CanAddr() {
			return v.Addr().Interface().(*T)
		}
		value := v.Interface().(T)
		return &value
	}
	return func(a, b reflect.Value) bool { return rule(at(a), at(b)) }
}

func values(a, b reflect.Value) bool {
	if a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Struct:
		return structs(a, b)
	case reflect.Slice:
		return lists(a, b)
	case reflect.Map:
		return maps(a, b)
	case reflect.Pointer:
		return a.Pointer() == b.Pointer() || !a.IsNil() && !b.IsNil() && values(a.Elem(), b.Elem())
	case reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return values(a.Elem(), b.Elem())
	default:
		return scalars(a, b)
	}
}

func scalars(a, b reflect.Value) bool {
	switch {
	case a.Kind() == reflect.String:
		return a.String() == b.String()
	case a.Kind() == reflect.Bool:
		return a.Bool() == b.Bool()
	case a.CanInt():
		return a.Int() == b.Int()
	case a.CanUint():
		return a.Uint() == b.Uint()
	case a.CanFloat():
		return a.Float() == b.Float()
	}
	panic("alike: no value of the API is of type " + a.Type().String())
}

func structs(a, b reflect.Value) bool {
	if rule, ok := special[a.Type()]; ok {
		return rule(a, b)
	}
	for i := range a.NumField() {
		if !values(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

func lists(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.Len() == 0 || a.Pointer() == b.Pointer() {
		return true
	}
	if a.Type().Elem().Kind() == reflect.Uint8 {
		return bytes.Equal(a.Bytes(), b.Bytes())
	}
	for i := range a.Len() {
		if !values(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func maps(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.Len() == 0 || a.Pointer() == b.Pointer() {
		return true
	}
	if rule, ok := plain[a.Type()]; ok {
		return rule(a, b)
	}
	for each := a.MapRange(); each.Next(); {
		other := b.MapIndex(each.Key())
		if !other.IsValid() || !values(each.Value(), other) {
			return false
		}
	}
	return true
}
