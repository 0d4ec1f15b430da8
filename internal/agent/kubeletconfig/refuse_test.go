package kubeletconfig

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// odd gives a value that nobody has.
func odd(v reflect.Value) {
	switch v.Interface().(type) {
	case metav1.Duration:
		v.Set(reflect.ValueOf(metav1.Duration{Duration: 17 * time.Hour}))
		return
	case resource.QuantityValue:
		v.Set(reflect.ValueOf(resource.QuantityValue{Quantity: resource.MustParse("17")}))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		odd(v.Elem())
	case reflect.String:
		v.SetString("odd")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(17)
	case reflect.Uint32:
		v.SetUint(17)
	case reflect.Float64:
		v.SetFloat(17)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		odd(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		odd(value)
		v.SetMapIndex(reflect.ValueOf("odd").Convert(v.Type().Key()), value)
	case reflect.Struct:
		odd(v.Field(0))
	}
}

// Whatever field there is, also one that a later version brings: what the agent is not told, and is not so anyway, is refused.
func TestNothingIsTakenAndNotDone(t *testing.T) {
	const told = "maxPods"
	seen := 0
	for _, name := range fields() {
		config := &Configuration{}
		walk(reflect.ValueOf(config).Elem(), "", func(field string, v reflect.Value) {
			if field == name {
				odd(v)
			}
		})
		given := leaves(config)[name]
		if !given.IsValid() {
			t.Errorf("nothing odd was found for %s", name)
			continue
		}
		if same(given, leaves(Fixed())[name]) || same(given, leaves(idle())[name]) {
			continue // it is true
		}
		seen++
		refused := refusals(config, []string{told})
		if want := name != told; want != (len(refused) == 1) || want && !strings.HasPrefix(refused[0], name+" ") {
			t.Errorf("%s: refused %q", name, refused)
		}
	}
	if seen < 100 {
		t.Errorf("only %d fields were tried", seen)
	}
}

func TestWhatIsSoMayBeSaid(t *testing.T) {
	for _, config := range []*Configuration{Fixed(), idle(), {}} {
		if refused := refusals(config, nil); len(refused) > 0 {
			t.Errorf("refused: %q", refused)
		}
	}
	all := fields()
	for prefix := range why {
		if !slices.ContainsFunc(all, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
			t.Errorf("there is a reason for %s, and no such field", prefix)
		}
	}
}
