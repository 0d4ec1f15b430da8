package alike_test

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/registry"
)

// Each kind is filled by chance, and one thing after the other changed: the answer is always that of the library.
func TestAsTheLibrary(t *testing.T) {
	differed := 0
	for _, kind := range registry.Kinds() {
		for seed := range int64(2) {
			a, other := kind.New(), kind.New()
			fill(seed, a)
			fill(seed+1000, other)
			b := a.DeepCopyObject()
			ask(t, a, b, true, fmt.Sprintf("%T", a))
			one := rand.New(rand.NewSource(seed))
			change(one, reflect.ValueOf(b).Elem(), reflect.ValueOf(other).Elem(), "", func(path string) {
				want := apiequality.Semantic.DeepEqual(a, b)
				ask(t, a, b, want, fmt.Sprintf("%T%s", a, path))
				if !want {
					differed++
				}
			})
		}
	}
	if differed < 5000 {
		t.Errorf("%d changes made a difference", differed)
	}
}

func ask(t *testing.T, a, b any, want bool, what string) {
	t.Helper()
	if got := alike.Values(a, b); got != want || alike.Values(b, a) != want {
		t.Errorf("%s: the same %v, want %v", what, got, want)
	}
}

func fill(seed int64, obj any) {
	randfill.NewWithSeed(seed).NilChance(0.2).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(5000), resource.DecimalSI)
		},
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(fmt.Sprint(c.Int31())) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(fmt.Sprint(c.Int31())) },
	).Fill(obj)
}

// change gives each thing in v that of another value, has it looked at, and takes it back.
func change(one *rand.Rand, v, other reflect.Value, path string, look func(string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	for _, with := range []reflect.Value{other, reflect.Zero(v.Type())} {
		v.Set(with)
		look(path)
	}
	v.Set(old)
	switch {
	case v.Kind() == reflect.Struct && !opaque(v.Type()):
		for i := range v.NumField() {
			change(one, v.Field(i), other.Field(i), path+"."+v.Type().Field(i).Name, look)
		}
	case v.Kind() == reflect.Pointer && !v.IsNil() && !other.IsNil():
		change(one, v.Elem(), other.Elem(), path, look)
	case v.Kind() == reflect.Slice && v.Len() > 0:
		v.Set(v.Slice(0, v.Len()-1))
		look(path + " shorter")
		v.Set(old)
		if i := one.Intn(v.Len()); other.Len() > 0 {
			change(one, v.Index(i), other.Index(0), path+"[]", look)
		}
	case v.Kind() == reflect.Map && v.Len() > 0:
		key := v.MapKeys()[0]
		was := v.MapIndex(key)
		v.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
		look(path + " entry")
		v.SetMapIndex(key, reflect.Value{})
		look(path + " without")
		v.SetMapIndex(reflect.ValueOf("another").Convert(v.Type().Key()), was)
		look(path + " renamed")
		v.SetMapIndex(reflect.ValueOf("another").Convert(v.Type().Key()), reflect.Value{})
		v.SetMapIndex(key, was)
	}
}

func opaque(t reflect.Type) bool {
	return t == reflect.TypeFor[resource.Quantity]() || t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.MicroTime]() ||
		t == reflect.TypeFor[runtime.RawExtension]() || t == reflect.TypeFor[metav1.FieldsV1]()
}

// What is written in two ways is the same, also where the library says so: the zone of a time, the unit of a quantity,
// an empty list.
func TestWrittenInTwoWays(t *testing.T) {
	now := time.Now()
	elsewhere := now.In(time.FixedZone("far", 3600))
	one, thousand := resource.MustParse("1Ki"), resource.MustParse("1024")
	raw := func(v any) *runtime.RawExtension { return &runtime.RawExtension{Object: v.(runtime.Object)} }
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{metav1.NewTime(now), metav1.NewTime(elsewhere), true},
		{&metav1.MicroTime{Time: now}, &metav1.MicroTime{Time: elsewhere}, true},
		{metav1.NewTime(now), metav1.NewTime(now.Add(1)), false},
		{one, thousand, true},
		{corev1.ResourceList{"cpu": one}, corev1.ResourceList{"cpu": thousand}, true},
		{corev1.ResourceList{"cpu": one}, corev1.ResourceList{"cpu": resource.MustParse("2")}, false},
		{corev1.ResourceList{"cpu": one}, corev1.ResourceList{"memory": one}, false},
		{map[string]string{"a": "1"}, map[string]string{"a": "1"}, true},
		{map[string]string{"a": ""}, map[string]string{"b": ""}, false},
		{map[string]string{"a": "1"}, map[string]string{"a": "2"}, false},
		{map[string][]byte{"a": nil}, map[string][]byte{"a": {}}, true},
		{map[string][]byte{"a": {1}}, map[string][]byte{"a": {2}}, false},
		{corev1.PodSpec{Volumes: []corev1.Volume{}}, corev1.PodSpec{}, true},
		{map[string]string{}, map[string]string(nil), true},
		{&corev1.Pod{}, (*corev1.Pod)(nil), false},
		{(*corev1.Pod)(nil), (*corev1.Pod)(nil), true},
		{raw(&corev1.Pod{}), raw(&corev1.Node{}), false},
		{raw(&corev1.Pod{}), raw(&corev1.Pod{}), true},
		{raw(&corev1.Pod{}), &runtime.RawExtension{}, false},
		{corev1.Pod{}, corev1.Node{}, false},
		{nil, nil, true},
		{nil, one, false},
	} {
		if library := apiequality.Semantic.DeepEqual(c.a, c.b); library != c.want {
			t.Errorf("%v and %v: the library says %v", c.a, c.b, library)
		}
		ask(t, c.a, c.b, c.want, fmt.Sprintf("%v and %v", c.a, c.b))
	}
}

// What nobody may change is refused as the library does.
func TestUnchanged(t *testing.T) {
	path := field.NewPath("spec", "thing")
	for _, c := range [][2]any{
		{"a", "a"}, {"a", "b"}, {[]string{}, []string(nil)}, {(*corev1.Pod)(nil), &corev1.Pod{}},
		{corev1.ResourceList{"cpu": resource.MustParse("1Ki")}, corev1.ResourceList{"cpu": resource.MustParse("1024")}},
		{corev1.ResourceList{"cpu": resource.MustParse("1")}, corev1.ResourceList{"cpu": resource.MustParse("2")}},
	} {
		want := validation.ValidateImmutableField(c[0], c[1], path).ToAggregate()
		if got := alike.Unchanged(c[0], c[1], path).ToAggregate(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v after %v: %v, want %v", c[0], c[1], got, want)
		}
	}
}

// The specification of a pod with many containers is compared for a tenth of what the library allocates.
func BenchmarkContainers(b *testing.B) {
	one := &corev1.PodSpec{Containers: make([]corev1.Container, 1000)}
	two := one.DeepCopy()
	for name, equal := range map[string]func(a, b any) bool{"alike": alike.Values, "library": apiequality.Semantic.DeepEqual} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				equal(one, two)
			}
		})
	}
}
