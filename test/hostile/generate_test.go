package hostile

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// member is a field of a type as JSON names it.
type member struct {
	name string
	typ  reflect.Type
}

// deref follows pointers.
func deref(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// opaque types look otherwise in JSON than their fields say.
func opaque(t reflect.Type) bool {
	return t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler)
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func membersOf(t reflect.Type) (out []member) {
	t = deref(t)
	if t == nil || t.Kind() != reflect.Struct || opaque(t) {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			out = append(out, membersOf(f.Type)...)
		case name != "" && name != "-":
			out = append(out, member{name, f.Type})
		}
	}
	return out
}

func memberType(t reflect.Type, name string) reflect.Type {
	if t = deref(t); t != nil && t.Kind() == reflect.Map {
		return t.Elem()
	}
	for _, m := range membersOf(t) {
		if m.name == name {
			return m.typ
		}
	}
	return nil
}

func elementType(t reflect.Type) reflect.Type {
	if t = deref(t); t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map) {
		return t.Elem()
	}
	return nil
}

// generate makes a value of the type; depth limits how far it goes down.
func (m *mutator) generate(t reflect.Type, depth int) any {
	t = deref(t)
	if t == nil || depth < 0 || m.oneIn(20) {
		return m.anything()
	}
	if v, ok := m.known(t); ok {
		return v
	}
	switch t.Kind() {
	case reflect.Bool:
		return m.oneIn(2)
	case reflect.String:
		return m.word()
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return base64.StdEncoding.EncodeToString([]byte(m.word()))
		}
		list := []any{}
		for range m.below(4) {
			list = append(list, m.generate(t.Elem(), depth-1))
		}
		return list
	case reflect.Map:
		out := map[string]any{}
		for range m.below(4) {
			out[m.word()] = m.generate(t.Elem(), depth-1)
		}
		return out
	case reflect.Struct:
		out, members := map[string]any{}, membersOf(t)
		if len(members) == 0 {
			return out
		}
		for range 1 + m.below(6) {
			f := pick(m.source, members)
			out[f.name] = m.member(f, depth-1)
		}
		return out
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return m.number()
	}
	return m.anything()
}

// known makes values of the types that have their own form in JSON.
func (m *mutator) known(t reflect.Type) (any, bool) {
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return pick(m.source, []string{
			"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z", "2036-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1700-01-01T00:00:00Z", "2300-01-01T00:00:00Z", "x",
		}), true
	case reflect.TypeFor[metav1.Duration]():
		return pick(m.source, []string{"1s", "0s", "-1s", "2540400h", "x"}), true
	case reflect.TypeFor[resource.Quantity]():
		return pick(m.source, []string{"1", "100m", "0", "1Gi", "-1", "1n", "9223372036854775807", "99999999999999999999E", "1e-30", "0.5", "x", "1E18", "7P"}), true
	case reflect.TypeFor[intstr.IntOrString]():
		if m.oneIn(2) {
			return pick(m.source, []string{"50%", "0%", "100%", "101%", "-1%", "x", "http", "1", "99999999999%"}), true
		}
		return m.number(), true
	case reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1]():
		return pick(m.source, []any{map[string]any{}, map[string]any{"f:spec": map[string]any{}}, map[string]any{"apiVersion": "v1", "kind": "Pod"}, []any{}, "x", json.Number("1"), true}), true
	}
	return nil, false
}

func (m *mutator) anything() any {
	switch m.below(7) {
	case 0:
		return m.word()
	case 1:
		return m.number()
	case 2:
		return true
	case 3:
		return nil
	case 4:
		return []any{m.word()}
	case 5:
		return map[string]any{m.word(): m.word()}
	}
	return []any{}
}
