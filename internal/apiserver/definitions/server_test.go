package definitions_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
			manifest := fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: %s\nmetadata: {name: x}\n%s", group, d.Spec.Names.Kind, text)
			raw, err := yaml.YAMLToJSON([]byte(manifest))
			if err == nil {
				err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &object)
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = within(client, group, d).Create(ctx, &unstructured.Unstructured{Object: object},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
			return err
		}
		env.Eventually("the definition is served", func(ctx context.Context) error { return put(ctx, group, least[d.Spec.Names.Kind]) })
		writeStatus(t, within(client, group, d), d.Spec.Names.Kind, group)
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

// within is where the objects of a definition are, in a group.
func within(client dynamic.Interface, group string, d *apiextensionsv1.CustomResourceDefinition) dynamic.ResourceInterface {
	of := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: d.Spec.Names.Plural})
	if d.Spec.Scope == apiextensionsv1.ClusterScoped {
		return of
	}
	return of.Namespace("default")
}

// least is what an object of a kind must have.
var least = map[string]string{"NodeStartup": "spec: {groups: [{daemonSets: [{namespace: a, name: b}]}]}"}

// statuses have every field of a status, as the controller writes them.
var statuses = map[string]string{
	"RolloutPolicy": `
observedGeneration: 3
matched: [agent, logs]
matchedCount: 2
conditions:
- {type: Ready, status: "True", reason: Followed, message: all is well, observedGeneration: 3, lastTransitionTime: "2026-03-01T12:00:00Z"}`,
	"NodeStartup": `
observedGeneration: 3
matchedNodes: 9
startingNodes: 2
openNodes: 7
openedByTimeout: 1
conditions:
- {type: Ordered, status: "False", reason: Beside, message: all at once, observedGeneration: 3, lastTransitionTime: "2026-03-01T12:00:00Z"}`,
	"DaemonSetVariant": `
observedGeneration: 3
daemonSets: 2
nodes: 7
conditions:
- {type: Applies, status: "False", reason: CannotBeHad, message: not here, observedGeneration: 3, lastTransitionTime: "2026-03-01T12:00:00Z"}`,
	"DaemonSetRollout": `
observedGeneration: 3
daemonSetGeneration: 9007199254740993
phase: Halted
message: revision b failed on 2 of 3 nodes
stableRevision: a
targetRevision: b
targetDigest: "sha256:0a"
policy: {name: p, uid: u, approval: Manual, specGeneration: 2}
failedRevisions:
- {revision: b, why: failed, nodes: [n1, n2], time: "2026-03-01T12:00:00Z", action: Halt, retries: 1}
step: canary
stepStarted: "2026-03-01T12:00:00Z"
lastDeparture: "2026-03-01T12:00:00Z"
soaked: 3m0s
steps:
- {name: canary, nodes: 3, done: 1, failed: 2, unavailable: 2}
counts: {FailedRevision: 2, Waiting: 9}
failures: {revision: b, nodes: [n1], more: 1}
conditions:
- {type: Failed, status: "True", reason: Halted, message: revision b failed, observedGeneration: 3, lastTransitionTime: "2026-03-01T12:00:00Z"}`,
}

// writeStatus writes a whole status, and reads it again.
func writeStatus(t *testing.T, objects dynamic.ResourceInterface, kind, group string) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal([]byte(least[kind]), &object.Object); err != nil {
		t.Fatal(err)
	}
	object.SetAPIVersion(group + "/v1alpha1")
	object.SetKind(kind)
	object.SetName("full")
	made, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a %s: %v", kind, err)
	}
	raw, err := yaml.YAMLToJSON([]byte(statuses[kind]))
	if err != nil {
		t.Fatal(err)
	}
	var status map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &status); err != nil {
		t.Fatal(err)
	}
	made.Object["status"] = status
	written, err := objects.UpdateStatus(t.Context(), made, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Errorf("write the status of a %s: %v", kind, err)
		return
	}
	if got := written.Object["status"]; !reflect.DeepEqual(got, any(status)) {
		t.Errorf("the status of a %s is\n%v\nwant\n%v", kind, got, status)
	}
}
