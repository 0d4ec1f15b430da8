package loops

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/testenv"
)

func expectNamespaceGone(t *testing.T, e *testenv.Env, name string) {
	t.Helper()
	e.Eventually("namespace "+name+" is gone", func(ctx context.Context) error {
		ns, err := e.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("phase %s, conditions %v", ns.Status.Phase, ns.Status.Conditions)
	})
}

func createNamespace(t *testing.T, e *testenv.Env, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := e.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// namespaceIsDeleted deletes a namespace with a running DaemonSet and some configuration.
func namespaceIsDeleted(t *testing.T, e *testenv.Env) {
	createNamespace(t, e, "team")
	labels := map[string]string{"app": "logs"}
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "logs"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}}},
			},
		},
	}
	if _, err := e.Client.AppsV1().DaemonSets("team").Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	if _, err := e.Client.CoreV1().Secrets("team").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually("the daemons run", func(ctx context.Context) error {
		ds, err := e.Client.AppsV1().DaemonSets("team").Get(ctx, "logs", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ds.Status.NumberReady != 2 {
			return fmt.Errorf("%d of 2 are ready", ds.Status.NumberReady)
		}
		return nil
	})
	if err := e.Client.CoreV1().Namespaces().Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectNamespaceGone(t, e, "team")
	// A namespace of the same name starts empty.
	createNamespace(t, e, "team")
	pods, err := e.Client.CoreV1().Pods("team").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 0 {
		t.Errorf("%d pods in the new namespace (%v)", len(pods.Items), err)
	}
	if _, err := e.Client.CoreV1().Secrets("team").Get(t.Context(), "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the old secret in the new namespace: %v", err)
	}
}

// finalizerHoldsNamespace tells what a namespace waits for, and goes on when that is gone.
func finalizerHoldsNamespace(t *testing.T, e *testenv.Env) {
	createNamespace(t, e, "held")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m", Finalizers: []string{"example.com/hold"}}}
	if _, err := e.Client.CoreV1().ConfigMaps("held").Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.Client.CoreV1().Namespaces().Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Eventually("the status tells what holds it", func(ctx context.Context) error {
		ns, err := e.Client.CoreV1().Namespaces().Get(ctx, "held", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == corev1.NamespaceFinalizersRemaining && c.Status == corev1.ConditionTrue &&
				strings.Contains(c.Message, "example.com/hold in 1 resource instances") && ns.Status.Phase == corev1.NamespaceTerminating {
				return nil
			}
		}
		return fmt.Errorf("phase %s, conditions %v", ns.Status.Phase, ns.Status.Conditions)
	})
	_, err := e.Client.CoreV1().ConfigMaps("held").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("creating something in a terminating namespace: %v", err)
	}
	release := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := e.Client.CoreV1().ConfigMaps("held").Patch(t.Context(), "m", types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expectNamespaceGone(t, e, "held")
}
