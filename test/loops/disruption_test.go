package loops

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/testenv"
)

// TestSecondEvictionWaitsForTheReplacement evicts pods of a DaemonSet one after the
// other. A finalizer holds the first one back, so that its place stays empty for as
// long as the test wants.
func TestSecondEvictionWaitsForTheReplacement(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t, testenv.SimulatedNodes(3))
	pods, budgets := e.Client.CoreV1().Pods("default"), e.Client.PolicyV1().PodDisruptionBudgets("default")
	labels := map[string]string{"app": "agent"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Finalizers: []string{"example.com/held"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}}},
		},
	}}
	if _, err := e.Client.AppsV1().DaemonSets("default").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
	}}
	if _, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := func(healthy, allowed int32) func(context.Context) error {
		return func(ctx context.Context) error {
			b, err := budgets.Get(ctx, "agent", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s := b.Status; s.CurrentHealthy != healthy || s.DisruptionsAllowed != allowed || s.DesiredHealthy != 2 || s.ExpectedPods != 3 || len(s.DisruptedPods) != 0 {
				return fmt.Errorf("the status is %+v, want %d of 2 healthy and %d allowed", s, healthy, allowed)
			}
			return nil
		}
	}
	e.Eventually("all three pods are healthy", status(3, 1))

	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=agent"})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("%d pods, %v; want 3", len(list.Items), err)
	}
	first, second := list.Items[0].Name, list.Items[1].Name
	evict := func(ctx context.Context, name string) error {
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	if err := evict(t.Context(), first); err != nil {
		t.Fatalf("evict the first pod: %v", err)
	}
	if err := evict(t.Context(), second); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("evict the second pod right away: %v, want 429", err)
	}
	e.Eventually("the first pod is seen to go", status(2, 0))
	if err := evict(t.Context(), second); !apierrors.IsTooManyRequests(err) {
		t.Fatalf("evict the second pod before the first one is replaced: %v, want 429", err)
	}

	release := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := pods.Patch(t.Context(), first, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually("the first pod is replaced", status(3, 1))
	if err := evict(t.Context(), second); err != nil {
		t.Fatalf("evict the second pod after the first one was replaced: %v", err)
	}
}
