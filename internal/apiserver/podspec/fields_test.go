package podspec

import (
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

// eachField calls f once for each field with a name of the type and of the structs of the API in it.
func eachField(at reflect.Type, seen map[reflect.Type]bool, f func(of reflect.Type, name string)) {
	for at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice || at.Kind() == reflect.Map {
		at = at.Elem()
	}
	if at.Kind() != reflect.Struct || at.PkgPath() != reflect.TypeFor[corev1.PodSpec]().PkgPath() || seen[at] {
		return
	}
	seen[at] = true
	for i := range at.NumField() {
		name, _, _ := strings.Cut(at.Field(i).Tag.Get("json"), ",")
		if name != "" {
			f(at, name)
		}
		eachField(at.Field(i).Type, seen, f)
	}
}

// decided reads testdata/fields: what becomes of a field, by "TYPE.FIELD".
func decided(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/fields")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		for _, name := range words[2:] {
			key := words[0] + "." + name
			if was, twice := out[key]; twice {
				t.Errorf("%s is %s and %s", key, was, words[1])
			}
			out[key] = words[1]
		}
	}
	return out
}

// Nothing is accepted and then silently not done: somebody decided about every field that a pod can have. A newer
// k8s.io/api with another field fails here until there is a line for it.
func TestEveryFieldIsDecided(t *testing.T) {
	page, err := os.ReadFile("../../../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	left := decided(t)
	eachField(reflect.TypeFor[corev1.PodSpec](), map[reflect.Type]bool{}, func(of reflect.Type, name string) {
		key := of.Name() + "." + name
		what, ok := left[key]
		delete(left, key)
		switch what {
		case "done":
		case "dropped":
			if !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("%s is dropped, and docs/differences.md does not name `%s`", key, name)
			}
		case "differs":
			if !strings.Contains(string(page), "`"+name+"`") && !strings.HasSuffix(of.Name(), "Source") &&
				of.Name() != "VolumeDevice" &&
				!strings.HasSuffix(of.Name(), "Projection") {
				t.Errorf("%s is not done, and docs/differences.md does not name `%s`", key, name)
			}
		default:
			t.Errorf("nobody decided what becomes of %s (%q, %v): see testdata/fields", key, what, ok)
		}
	})
	for key := range left {
		t.Errorf("testdata/fields has %s, which pods do not have", key)
	}
}

// full sets everything in v that can be set, pointers and lists with one element, to something that is not zero.
func full(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		full(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[resource.Quantity]() {
			v.Set(reflect.ValueOf(resource.MustParse("1")))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				full(v.Field(i))
			}
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	}
}

// What testdata/fields calls dropped is cleared wherever a pod can have it, and nothing else is.
func TestDroppedFieldsAreCleared(t *testing.T) {
	spec := &corev1.PodSpec{}
	full(reflect.ValueOf(spec).Elem())
	before := spec.DeepCopy()
	defaults.Set(spec)
	compared := map[string]bool{}
	what := decided(t)
	var look func(v, was reflect.Value)
	look = func(v, was reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() && !was.IsNil() {
				look(v.Elem(), was.Elem())
			}
		case reflect.Slice:
			for i := range min(v.Len(), was.Len()) {
				look(v.Index(i), was.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
				key := v.Type().Name() + "." + name
				gone := v.Field(i).IsZero()
				if name != "" && !was.Field(i).IsZero() && gone != (what[key] == "dropped") {
					t.Errorf("%s is %q, and cleared: %v", key, what[key], gone)
				}
				compared[key] = true
				if v.Field(i).CanSet() {
					look(v.Field(i), was.Field(i))
				}
			}
		}
	}
	look(reflect.ValueOf(spec).Elem(), reflect.ValueOf(before).Elem())
	for key, is := range what {
		if is == "dropped" && !compared[key] {
			t.Errorf("%s was not looked at", key)
		}
	}
}

// RestartAllContainers is behind a gate; a rule that no node does is refused.
func TestRestartAllContainersIsRefused(t *testing.T) {
	c := &corev1.Container{RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever),
		RestartPolicyRules: []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn,
				Values: []int32{1}},
		}}}
	errs := validateRestart(c, field.NewPath("c"))
	if len(errs) != 1 || errs[0].Error() != `c.restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"` {
		t.Errorf("got %v", errs)
	}
	c.RestartPolicyRules[0].Action = corev1.ContainerRestartRuleActionRestart
	if errs := validateRestart(c, field.NewPath("c")); len(errs) > 0 {
		t.Errorf("got %v", errs)
	}
}
