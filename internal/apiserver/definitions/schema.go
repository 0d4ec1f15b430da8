package definitions

import (
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/openapi"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

type props = apiextensionsv1.JSONSchemaProps

// schemaOf makes a kind's schema of the generated definitions. A definition of a
// custom resource refers to no other, so everything is written out.
func schemaOf(kind resource.Kind) (*props, error) {
	w := writer{definitions: openapi.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef(name) })}
	named, ok := kindName(kind)
	if !ok {
		return nil, fmt.Errorf("no type has the name %s", named)
	}
	out, err := w.named(named)
	if err != nil {
		return nil, err
	}
	out.Properties["metadata"] = props{Type: "object"} // the API server knows it
	status := out.Properties["status"]
	status.Default = nil
	out.Properties["status"] = status
	return out, nil
}

// kindName is the name of a kind's generated definition.
func kindName(kind resource.Kind) (string, bool) {
	name := "io.everynode." + kind.GroupVersion.Version + "." + kind.Kind
	_, ok := openapi.GetOpenAPIDefinitions(func(string) spec.Ref { return spec.Ref{} })[name]
	return name, ok
}

// writer writes out definitions.
type writer struct {
	definitions map[string]common.OpenAPIDefinition
}

func (w writer) named(name string) (*props, error) {
	switch name {
	case metav1.ObjectMeta{}.OpenAPIModelName():
		return &props{Type: "object"}, nil
	case intstr.IntOrString{}.OpenAPIModelName():
		return &props{XIntOrString: true, AnyOf: []props{{Type: "integer"}, {Type: "string"}}}, nil
	case runtime.RawExtension{}.OpenAPIModelName():
		return &props{Type: "object", XPreserveUnknownFields: ptr.To(true)}, nil
	}
	d, ok := w.definitions[name]
	if !ok {
		return nil, fmt.Errorf("there is no definition of %s", name)
	}
	return w.schema(&d.Schema)
}

// schema writes one out, with what it refers to. What stands beside a reference
// goes before what is said there.
func (w writer) schema(s *spec.Schema) (out *props, err error) {
	out = &props{Format: s.Format}
	if name := s.Ref.String(); name != "" {
		if out, err = w.named(name); err != nil {
			return nil, err
		}
	}
	if len(s.Type) > 0 {
		out.Type = s.Type[0]
	}
	if s.Description != "" {
		out.Description = s.Description
	}
	if s.Default != nil {
		raw, err := json.Marshal(s.Default)
		if err != nil {
			return nil, err
		}
		out.Default = &apiextensionsv1.JSON{Raw: raw}
	}
	for _, value := range s.Enum {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		out.Enum = append(out.Enum, apiextensionsv1.JSON{Raw: raw})
	}
	if err := w.parts(s, out); err != nil {
		return nil, err
	}
	return out, listKeys(s.Extensions, out)
}

// parts writes out fields, items and values.
func (w writer) parts(s *spec.Schema, out *props) error {
	if s.Items != nil && s.Items.Schema != nil {
		item, err := w.schema(s.Items.Schema)
		if err != nil {
			return err
		}
		item.Default = nil
		out.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: item}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		value, err := w.schema(s.AdditionalProperties.Schema)
		if err != nil {
			return err
		}
		value.Default = nil
		out.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: value}
	}
	if len(s.Required) > 0 {
		out.Required = slices.Clone(s.Required)
	}
	for name := range s.Properties {
		field := s.Properties[name]
		p, err := w.schema(&field)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		// Go's zero value of a field that must be given is no default.
		if slices.Contains(s.Required, name) {
			p.Default = nil
		}
		if out.Properties == nil {
			out.Properties = map[string]props{}
		}
		out.Properties[name] = *p
	}
	return nil
}

// listKeys takes over how lists and maps are merged.
func listKeys(from spec.Extensions, out *props) error {
	for name, value := range from {
		switch name {
		case "x-kubernetes-list-type":
			out.XListType = ptr.To(fmt.Sprint(value))
		case "x-kubernetes-map-type":
			out.XMapType = ptr.To(fmt.Sprint(value))
		case "x-kubernetes-list-map-keys":
			keys, ok := value.([]any)
			if !ok {
				return fmt.Errorf("the keys of a list are %v", value)
			}
			for _, k := range keys {
				out.XListMapKeys = append(out.XListMapKeys, fmt.Sprint(k))
			}
		default:
			return fmt.Errorf("%s cannot be in a definition", name)
		}
	}
	return nil
}
