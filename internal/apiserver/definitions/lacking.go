package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
)

// published is a schema as an API publishes it (OpenAPI v3), as far as it says which fields there are.
type published struct {
	Ref        string               `json:"$ref"`
	AllOf      []published          `json:"allOf"`
	Properties map[string]published `json:"properties"`
	Items      *published           `json:"items"`
	// Additional is a schema or a bool.
	Additional json.RawMessage `json:"additionalProperties"`
	// Keeps: what is not named is kept all the same.
	Keeps bool                    `json:"x-kubernetes-preserve-unknown-fields"`
	Kinds []struct{ Kind string } `json:"x-kubernetes-group-version-kind"`
}

// schemas are all that an API publishes for a group and version, by name.
type schemas map[string]published

// Lacking returns the fields of Everynode's own kinds that an API does not have, by the OpenAPI v3 document that it
// publishes for their group and version, such as "RolloutPolicy spec.content": an API whose definitions are older drops
// what is written there. Of a field that is missing the fields below are not named, nor are kinds that are missing.
func Lacking(document []byte) ([]string, error) {
	var of struct {
		Components struct {
			Schemas schemas `json:"schemas"`
		} `json:"components"`
	}
	err := json.Unmarshal(document, &of)
	if err != nil {
		return nil, fmt.Errorf("read what the API publishes of its kinds: %w", err)
	}
	all, err := All()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range all {
		for _, is := range of.Components.Schemas {
			if len(is.Kinds) != 1 || is.Kinds[0].Kind != d.Spec.Names.Kind {
				continue // lists of options name many
			}
			for _, field := range of.Components.Schemas.lacks(is, d.Spec.Versions[0].Schema.OpenAPIV3Schema, "") {
				out = append(out, d.Spec.Names.Kind+" "+field)
			}
		}
	}
	return out, nil
}

// LackingOf asks an API, and returns its Lacking. One without any of the kinds lacks nothing.
func LackingOf(ctx context.Context, client rest.Interface) ([]string, error) {
	document, err := client.Get().AbsPath("/openapi/v3/apis/" + v1alpha1.GroupVersion.String()).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask the API which fields its kinds have: %w", err)
	}
	return Lacking(document)
}

// resolve follows references, also those that stand beside a default or a description.
func (all schemas) resolve(is published) published {
	for range maxRefs {
		ref := is.Ref
		if ref == "" && len(is.AllOf) == 1 {
			ref = is.AllOf[0].Ref
		}
		if ref == "" {
			break
		}
		is = all[strings.TrimPrefix(ref, "#/components/schemas/")]
	}
	return is
}

// maxRefs is how many references are followed at one place, which may lead in a circle.
const maxRefs = 10

// lacks returns the paths of fields that are wanted and not there.
func (all schemas) lacks(is published, want *apiextensionsv1.JSONSchemaProps, at string) (out []string) {
	is = all.resolve(is)
	if is.Keeps {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(want.Properties)) {
		next, path := want.Properties[name], strings.TrimPrefix(at+"."+name, ".")
		has, there := is.Properties[name]
		if !there {
			out = append(out, path)
			continue
		}
		out = append(out, all.lacks(has, &next, path)...)
	}
	if want.Items != nil && want.Items.Schema != nil && is.Items != nil {
		out = append(out, all.lacks(*is.Items, want.Items.Schema, at+"[]")...)
	}
	if want.AdditionalProperties != nil && want.AdditionalProperties.Schema != nil {
		var values published
		if json.Unmarshal(is.Additional, &values) == nil { // else it takes anything, or nothing
			out = append(out, all.lacks(values, want.AdditionalProperties.Schema, at+".*")...)
		}
	}
	return out
}
