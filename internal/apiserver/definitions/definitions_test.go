package definitions

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// elsewhere is a Kubernetes API that has a definition of ours.
type elsewhere struct {
	schema   *structuralschema.Structural
	validate func(*unstructured.Unstructured) field.ErrorList
}

func internalOf(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apiextensions.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	types.Default(d)
	out := &apiextensions.CustomResourceDefinition{}
	if err := types.Convert(d, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

func newElsewhere(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) elsewhere {
	t.Helper()
	schema := internalOf(t, d).Spec.Validation.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(schema)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := schemavalidation.NewSchemaValidator(schema)
	if err != nil {
		t.Fatal(err)
	}
	kind := v1alpha1.GroupVersion.WithKind(d.Spec.Names.Kind)
	strategy := customresource.NewStrategy(runtime.NewScheme(), true, kind, validator, nil, structural, &apiextensions.CustomResourceSubresourceStatus{}, nil, nil)
	return elsewhere{structural, func(u *unstructured.Unstructured) field.ErrorList { return strategy.Validate(t.Context(), u) }}
}

// take does with an object what the API server does with a custom resource.
func (e elsewhere) take(object map[string]any) error {
	stray := pruning.PruneWithOptions(object, e.schema, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(stray) > 0 {
		return fmt.Errorf("unknown field %s", stray[0])
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, e.schema)
	defaulting.Default(object, e.schema)
	return e.validate(&unstructured.Unstructured{Object: object}).ToAggregate()
}

func TestDefinitionsAreValid(t *testing.T) {
	definitions, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range definitions {
		if errs := validation.ValidateCustomResourceDefinition(t.Context(), internalOf(t, d)); len(errs) > 0 {
			t.Errorf("%s is refused: %v", d.Name, errs.ToAggregate())
		}
		var walk func(path string, p props)
		walk = func(path string, p props) {
			if p.Description == "" && !strings.Contains(path, "[]") && path != ".metadata" {
				t.Errorf("%s%s has no description", d.Name, path)
			}
			for name, field := range p.Properties {
				walk(path+"."+name, field)
			}
		}
		walk("", *d.Spec.Versions[0].Schema.OpenAPIV3Schema)
	}
}

// TestNameOfANodeStartup: the schema of metadata says nothing of names, a rule of the whole object does.
func TestNameOfANodeStartup(t *testing.T) {
	definitions, err := All()
	if err != nil {
		t.Fatal(err)
	}
	there := newElsewhere(t, definitions[3])
	for _, length := range []int{nodestartup.MaxName, nodestartup.MaxName + 1} {
		err := there.take(map[string]any{
			"apiVersion": "everynode.io/v1alpha1", "kind": "NodeStartup",
			"metadata": map[string]any{"name": strings.Repeat("a", length), "namespace": "default"},
			"spec": map[string]any{"groups": []any{map[string]any{
				"daemonSets": []any{map[string]any{"namespace": "a", "name": "b"}}}}},
		})
		if (err == nil) != (length == nodestartup.MaxName) {
			t.Errorf("a name of %d characters: %v", length, err)
		}
	}
}

// builtIn does what Everynode's own API server does, as far as the spec goes.
func builtIn(kind string, raw []byte) (runtime.Object, error) {
	var object runtime.Object = &v1alpha1.RolloutPolicy{}
	if kind == "DaemonSetRollout" {
		object = &v1alpha1.DaemonSetRollout{}
	} else if kind == "DaemonSetVariant" {
		object = &v1alpha1.DaemonSetVariant{}
	} else if kind == "NodeStartup" {
		object = &v1alpha1.NodeStartup{}
	}
	stray, err := kjson.UnmarshalStrict(raw, object)
	if err != nil {
		return nil, err
	}
	if len(stray) > 0 {
		return nil, stray[0]
	}
	switch o := object.(type) {
	case *v1alpha1.RolloutPolicy:
		rolloutpolicy.SetDefaults(&o.Spec)
		return o, rolloutpolicy.Validate(&o.Spec, field.NewPath("spec")).ToAggregate()
	case *v1alpha1.DaemonSetVariant:
		return o, variant.Validate(o).ToAggregate()
	case *v1alpha1.NodeStartup:
		nodestartup.SetDefaults(&o.Spec)
		return o, nodestartup.Validate(o).ToAggregate()
	case *v1alpha1.DaemonSetRollout:
		return o, rolloutpolicy.ValidateRollout(&o.Spec, field.NewPath("spec")).ToAggregate()
	}
	return object, nil
}

// TestBothTakeAndRefuseTheSame puts the same objects to both, and compares what is
// filled in.
func TestBothTakeAndRefuseTheSame(t *testing.T) {
	definitions, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for i, cases := range [][]objectCase{policyCases(), rolloutCases(), variantCases(), startupCases()} {
		kind := definitions[i].Spec.Names.Kind
		there := newElsewhere(t, definitions[i])
		for _, c := range cases {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				manifest := fmt.Sprintf("apiVersion: everynode.io/v1alpha1\nkind: %s\nmetadata: {name: x, namespace: default}\n%s", kind, c.text)
				raw, err := yaml.YAMLToJSONStrict([]byte(manifest))
				if err != nil {
					t.Fatal(err)
				}
				object := map[string]any{}
				if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
					t.Fatal(err)
				}
				here, errHere := builtIn(kind, raw)
				errThere := there.take(object)
				if (errHere == nil) != c.good {
					t.Errorf("built in the answer is %v, want good %v", errHere, c.good)
				}
				if (errThere == nil) != c.good {
					t.Errorf("by its definition the answer is %v, want good %v", errThere, c.good)
				}
				if c.good && errHere == nil && errThere == nil {
					sameAsStored(t, here, object, strings.Contains(c.text, `""`))
				}
			})
		}
	}
}

// sameAsStored compares what is stored here and there, by what it means. An empty
// text stays one there; who reads it takes it for the default.
func sameAsStored(t *testing.T, here runtime.Object, there map[string]any, empty bool) {
	t.Helper()
	raw, err := json.Marshal(there)
	if err != nil {
		t.Fatal(err)
	}
	read := reflect.New(reflect.TypeOf(here).Elem()).Interface()
	if err := json.Unmarshal(raw, read); err != nil {
		t.Fatal(err)
	}
	if o, ok := read.(*v1alpha1.RolloutPolicy); ok && empty {
		rolloutpolicy.SetDefaults(&o.Spec)
	}
	if o, ok := read.(*v1alpha1.NodeStartup); ok && empty {
		nodestartup.SetDefaults(&o.Spec)
	}
	a, _ := json.Marshal(here)
	b, _ := json.Marshal(read)
	if string(a) != string(b) {
		t.Errorf("built in it is stored as\n%s\nby its definition as\n%s", a, b)
	}
}
