package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/everynode/everynode/internal/agent/document"
)

// Configuration is a kubelet's.
type Configuration = kubelet.KubeletConfiguration

const kind = "KubeletConfiguration"

// Decode reads a configuration file. Fields that are not there are zero. Settable are the fields that the agent can be
// told, such as logging.verbosity. The error, one line, names everything that is wrong.
func Decode(data []byte, settable []string) (*Configuration, error) {
	types := runtime.NewScheme()
	if err := kubelet.AddToScheme(types); err != nil {
		return nil, fmt.Errorf("register the kinds of kubelets' files: %w", err)
	}
	obj, err := document.Decode(data, types, kubelet.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*Configuration)
	if !ok {
		return nil, fmt.Errorf("holds a %T", obj)
	}
	if refused := refusals(config, settable); len(refused) > 0 {
		return nil, fmt.Errorf("cannot be had: %s", strings.Join(refused, "; "))
	}
	return config, nil
}

// refusals says what of the configuration cannot be had.
func refusals(config *Configuration, settable []string) (out []string) {
	fixed, idle := leaves(Fixed()), leaves(idle())
	given := leaves(config)
	for _, name := range fields() {
		value, ok := given[name]
		if !ok || slices.Contains(settable, name) || same(value, fixed[name]) || same(value, idle[name]) {
			continue
		}
		advice := "leave it out"
		if is, ok := fixed[name]; ok {
			advice += " or write " + text(is)
		}
		if reason := reasonOf(name); reason != "" {
			advice += ": " + reason
		}
		out = append(out, fmt.Sprintf("%s %s (%s)", name, text(value), advice))
	}
	return out
}

func reasonOf(name string) string {
	longest := ""
	for prefix := range why {
		if strings.HasPrefix(name, prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	return why[longest]
}

// leaves are the values of a configuration that are not empty, by their names.
func leaves(config *Configuration) map[string]reflect.Value {
	out := map[string]reflect.Value{}
	walk(reflect.ValueOf(config).Elem(), "", func(name string, value reflect.Value) {
		if !isEmpty(value) {
			out[name] = value
		}
	})
	return out
}

// fields are the names of all that can be said, in the order of the kind's fields.
func fields() (out []string) {
	walk(reflect.ValueOf(Configuration{}), "", func(name string, _ reflect.Value) { out = append(out, name) })
	return out
}

// walk visits what has a value of its own below a structure.
func walk(v reflect.Value, prefix string, visit func(name string, value reflect.Value)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Type == reflect.TypeFor[metav1.TypeMeta]() || name == "-" {
			continue
		}
		switch {
		case field.Type.Kind() != reflect.Struct || isWhole(field.Type):
			visit(prefix+name, v.Field(i))
		case name == "" && field.Anonymous:
			walk(v.Field(i), prefix, visit)
		default:
			walk(v.Field(i), prefix+name+".", visit)
		}
	}
}

// isWhole says of a structure that it is one value.
func isWhole(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[metav1.Duration](), reflect.TypeFor[resource.QuantityValue](), flushFrequency:
		return true
	}
	return false
}

var flushFrequency = reflect.TypeOf(Configuration{}.Logging.FlushFrequency)

// isEmpty says that nothing was said, as a kubelet takes it.
func isEmpty(v reflect.Value) bool {
	if amount, ok := v.Interface().(resource.QuantityValue); ok {
		return amount.IsZero()
	}
	switch {
	case v.Type() == flushFrequency:
		return v.FieldByName("Duration").IsZero()
	case v.Kind() == reflect.Slice || v.Kind() == reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

func same(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return false
	}
	if a.Type() == flushFrequency {
		a, b = a.FieldByName("Duration"), b.FieldByName("Duration") // written as a number or as a text
	}
	return equality.Semantic.DeepEqual(a.Interface(), b.Interface())
}

// text is a value as it is said in a file.
func text(v reflect.Value) string {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return string(data)
}
