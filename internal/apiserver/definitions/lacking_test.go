package definitions_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/definitions"
	"github.com/everynode/everynode/internal/testenv"
)

// TestAnAPILacksNoFieldOfItsOwn: neither the built-in kinds nor those that a server makes of the definitions do, and of
// older definitions it is said which.
func TestAnAPILacksNoFieldOfItsOwn(t *testing.T) {
	env := testenv.Start(t)
	client := kubernetes.NewForConfigOrDie(env.Config)
	published := func(group string) ([]byte, error) {
		return client.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/" + group + "/v1alpha1").Do(t.Context()).Raw()
	}
	document, err := published("everynode.io")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := definitions.Lacking(document); err != nil || len(got) > 0 {
		t.Errorf("the built-in kinds lack %v, %v", got, err)
	}
	const group = "elsewhere.example.com"
	resources := dynamic.NewForConfigOrDie(env.Config).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	all, err := definitions.All()
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range all {
		d.Name, d.Spec.Group = d.Spec.Names.Plural+"."+group, group
		if i == 0 {
			spec := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
			delete(spec.Properties, "content")
			waves := spec.Properties["waves"].Items.Schema
			delete(waves.Properties, "ramp")
			waves.XValidations, spec.XValidations = nil, nil
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err == nil {
			_, err = resources.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"RolloutPolicy spec.content", "RolloutPolicy spec.waves[].ramp"}
	var got []string
	for range 300 { // it is published by and by
		document, err = published(group)
		if err == nil {
			got, err = definitions.Lacking(document)
		}
		if err == nil && reflect.DeepEqual(got, want) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("older definitions lack %v, %v, want %v", got, err, want)
}

// TestLackingOfWhatIsNoDocument: nothing that an API may answer makes it fail but what is no JSON.
func TestLackingOfWhatIsNoDocument(t *testing.T) {
	for text, fails := range map[string]bool{
		"": true, "{": true, "[]": true, "{}": false, `{"components": {"schemas": {}}}`: false,
	} {
		if got, err := definitions.Lacking([]byte(text)); (err != nil) != fails || len(got) > 0 {
			t.Errorf("%q lacks %v, %v", text, got, err)
		}
	}
	kind := map[string]any{"x-kubernetes-group-version-kind": []any{map[string]any{"kind": "RolloutPolicy"}}}
	text, err := json.Marshal(map[string]any{"components": map[string]any{"schemas": map[string]any{"x": kind}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := definitions.Lacking(text); err != nil || !slices.Contains(got, "RolloutPolicy spec") {
		t.Errorf("a kind without fields lacks %v, %v", got, err)
	}
}
