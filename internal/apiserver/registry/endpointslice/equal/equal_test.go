package equal

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/randfill"
)

// Whatever field differs, also one that a later API has, makes endpoints differ.
func TestEveryFieldCounts(t *testing.T) {
	check(t, Subsets)
	check(t, Endpoints)
}

// check changes one thing after the other in a filled list, and compares with what compares by reflection.
func check[T corev1.EndpointSubset | discoveryv1.Endpoint](t *testing.T, same func(a, b []T) bool) {
	t.Helper()
	filler := randfill.NewWithSeed(1).NilChance(0).NumElements(2, 2)
	var a, other []T
	filler.Fill(&a)
	filler.Fill(&other)
	b := copied(reflect.ValueOf(a)).Interface().([]T)
	if !same(a, b) || same(a, nil) || !same(nil, []T{}) {
		t.Errorf("%T: the same is taken for another, or another for the same", a)
	}
	changed := 0
	leaves(reflect.ValueOf(b), reflect.ValueOf(other), "", func(path string) {
		changed++
		if want := apiequality.Semantic.DeepEqual(a, b); same(a, b) != want {
			t.Errorf("%T: where%s differs, the same is said to be %v", a, path, same(a, b))
		}
	})
	if changed < 10 {
		t.Errorf("%T: %d things were changed", a, changed)
	}
}

// leaves gives each thing in a value that of another value, has it looked at, and takes it back.
func leaves(v, other reflect.Value, path string, look func(string)) {
	swap := func(with reflect.Value) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		v.Set(with)
		look(path)
		v.Set(old)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), other.Field(i), path+" "+v.Type().Field(i).Name, look)
		}
	case reflect.Slice:
		if v.CanSet() {
			swap(v.Slice(0, 1))
		}
		leaves(v.Index(1), other.Index(1), path, look)
	case reflect.Pointer:
		swap(reflect.Zero(v.Type()))
		leaves(v.Elem(), other.Elem(), path, look)
	case reflect.Bool:
		swap(reflect.ValueOf(!v.Bool()))
	default:
		swap(other)
	}
}

// copied is a deep copy of lists, structs and pointers.
func copied(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(copied(v.Field(i)))
		}
	case reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(copied(v.Index(i)))
		}
	case reflect.Pointer:
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(copied(v.Elem()))
	}
	return out
}
