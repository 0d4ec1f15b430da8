package resource_test

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// place is where a list or map is, by the fields that lead there.
type place struct {
	fields []reflect.StructField
	// template is how many fields lead to the template of a pod, 0 for no such.
	template int
}

func (p place) String() string {
	names := make([]string, 0, len(p.fields))
	for _, f := range p.fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ".")
}

// once names places that are the same in several kinds; empty for others.
func (p place) once() string {
	if p.template == 0 {
		return ""
	}
	return place{fields: p.fields[p.template:]}.String()
}

// opaque are types whose fields nobody fills by hand.
var opaque = map[reflect.Type]bool{
	reflect.TypeFor[metav1.Time](): true, reflect.TypeFor[metav1.MicroTime](): true, reflect.TypeFor[resource.Quantity](): true,
	reflect.TypeFor[intstr.IntOrString](): true, reflect.TypeFor[apiruntime.RawExtension](): true, reflect.TypeFor[metav1.FieldsV1](): true,
}

// listsOf finds all lists and maps of a type, also those in lists.
func listsOf(t reflect.Type) []place { return below(t, place{}, map[reflect.Type]bool{}) }

func below(t reflect.Type, at place, inside map[reflect.Type]bool) (out []place) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[corev1.PodTemplateSpec]() {
		at.template = len(at.fields)
	}
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		if t.Elem().Kind() == reflect.Uint8 {
			return nil
		}
		out = append(out, at)
		return append(out, below(t.Elem(), at, inside)...)
	}
	if t.Kind() != reflect.Struct || opaque[t] || inside[t] {
		return out
	}
	inside[t] = true
	defer delete(inside, t)
	for f := range fieldsOf(t) {
		next := place{append(append([]reflect.StructField{}, at.fields...), f), at.template}
		out = append(out, below(f.Type, next, inside)...)
	}
	return out
}

// fieldsOf yields the fields that a client may set.
func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.IsExported() && f.Type != reflect.TypeFor[metav1.TypeMeta]() && f.Name != "ManagedFields" && !yield(f) {
				return
			}
		}
	}
}

// filling says how entries look.
type filling struct {
	// different ones differ in each text and number, others are the same.
	different bool
	// rich ones have all that they may have, others texts and numbers only.
	rich bool
}

// put fills the list at a place. What leads there has one entry each.
func (p place) put(v reflect.Value, fill filling, n int) {
	for _, f := range p.fields {
		v = first(v).FieldByIndex(f.Index)
	}
	for v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	fill.many(v, n)
}

// first goes through pointers and lists to a struct, and makes them on the way.
func first(v reflect.Value) reflect.Value {
	for {
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		case reflect.Slice:
			if v.Len() == 0 {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			}
			v = v.Index(0)
		case reflect.Map:
			// A map's entry cannot be changed in place; that of one is enough.
			return reflect.New(v.Type().Elem()).Elem()
		default:
			return v
		}
	}
}

func (f filling) many(v reflect.Value, n int) {
	if v.Kind() == reflect.Map {
		v.Set(reflect.MakeMapWithSize(v.Type(), n))
		for i := range n {
			key, entry := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			filling{different: true}.one(key, i, 0)
			f.one(entry, i, 1)
			v.SetMapIndex(key, entry)
		}
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		f.one(v.Index(i), i, 2)
	}
}

// one fills an entry; depth is how far below it, if it is rich.
func (f filling) one(v reflect.Value, i, depth int) {
	if !f.different {
		i = 0
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("k", i))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(i%90 + 1)) // Good also as a port, a weight and the mode of a file.
	case reflect.Pointer:
		if f.rich && depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.one(v.Elem(), i, depth)
		}
	case reflect.Slice, reflect.Map:
		if f.rich && depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			f.fewOf(v, i, depth-1)
		}
	case reflect.Struct:
		if opaque[v.Type()] {
			return
		}
		for field := range fieldsOf(v.Type()) {
			f.one(v.FieldByIndex(field.Index), i, depth-1)
		}
	}
}

// fewOf makes a list of one entry.
func (f filling) fewOf(v reflect.Value, i, depth int) {
	if v.Kind() == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.one(v.Index(0), i, depth)
		return
	}
	key, entry := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
	f.one(key, i, 0)
	f.one(entry, i, depth)
	v.Set(reflect.MakeMap(v.Type()))
	v.SetMapIndex(key, entry)
}
