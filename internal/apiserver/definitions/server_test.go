package definitions_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/apiserver/definitions"
	"github.com/everynode/everynode/internal/testenv"
)

// TestAnAPIServerTakesAndRefusesTheSame puts the same objects to the built-in kinds and
// to those that the same server made of the definitions, under another group.
func TestAnAPIServerTakesAndRefusesTheSame(t *testing.T) {
	const group = "elsewhere.example.com"
	env := testenv.Start(t)
	client, err := dynamic.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	all, err := definitions.All()
	if err != nil {
		t.Fatal(err)
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for i, d := range all {
		d.Name = d.Spec.Names.Plural + "." + group
		d.Spec.Group = group
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Resource(crds).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
			t.Fatalf("the server refuses the definition %s: %v", d.Name, err)
		}
		put := func(ctx context.Context, group, text string) error {
			var object map[string]any
			manifest := fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: %s\nmetadata: {name: x, namespace: default}\n%s", group, d.Spec.Names.Kind, text)
			raw, err := yaml.YAMLToJSON([]byte(manifest))
			if err == nil {
				err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &object)
			}
			if err != nil {
				t.Fatal(err)
			}
			resource := schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: d.Spec.Names.Plural}
			_, err = client.Resource(resource).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: object},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			return err
		}
		env.Eventually("the definition is served", func(ctx context.Context) error { return put(ctx, group, "") })
		for _, c := range definitions.Cases()[i] {
			for _, g := range []string{all[i].Spec.Group, "everynode.io"} {
				if err := put(t.Context(), g, c.Text); (err == nil) != c.Good {
					t.Errorf("%s in %s: %s: the answer is %v, want good %v", d.Spec.Names.Kind, g, c.Name, err, c.Good)
				} else if err != nil && strings.Contains(err.Error(), "could not find the requested resource") {
					t.Errorf("%s in %s: %v", d.Spec.Names.Kind, g, err)
				}
			}
		}
	}
}
