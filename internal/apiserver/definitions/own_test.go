package definitions_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/definitions"
	"github.com/everynode/everynode/internal/testenv"
)

// TestDefinitionsBesideTheBuiltInKinds: whoever applies them to Everynode itself, and
// deletes them again, loses nothing.
func TestDefinitionsBesideTheBuiltInKinds(t *testing.T) {
	env := testenv.Start(t)
	objects, err := dynamic.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	own, err := client.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	policies := own.RolloutPolicies("default")
	make := func(name string) {
		t.Helper()
		if _, err := policies.Create(t.Context(), &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	make("before")
	all, err := definitions.All()
	if err != nil {
		t.Fatal(err)
	}
	crds := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, d := range all {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := crds.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually("the definition is taken up", func(ctx context.Context) error {
			got, err := crds.Get(ctx, d.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, err := unstructured.NestedSlice(got.Object, "status", "conditions")
			if err == nil && len(conditions) < 2 {
				err = fmt.Errorf("its conditions are %v", conditions)
			}
			return err
		})
	}
	make("between")
	for _, d := range all {
		if err := crds.Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually("the definition goes", func(ctx context.Context) error {
			_, err := crds.Get(ctx, d.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("the answer is %w", err)
			}
			return nil
		})
	}
	make("after")
	got, err := policies.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(got.Items) != 3 {
		t.Errorf("there are %d policies, %v; want 3", len(got.Items), err)
	}
}
