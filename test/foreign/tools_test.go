package foreign

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/everynode/everynode/internal/testenv/gitops"
)

var (
	daemonSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	changes    = schema.GroupVersionResource{Group: "everynode.io", Version: "v1alpha1", Resource: "daemonsetrollouts"}
)

// read is an object of the namespace default as the API gives it to tools.
func (b *beside) read(ctx context.Context, kind schema.GroupVersionResource, name string) (*unstructured.Unstructured,
	error) {
	client, err := dynamic.NewForConfig(b.config)
	if err != nil {
		return nil, err
	}
	return client.Resource(kind).Namespace("default").Get(ctx, name, metav1.GetOptions{})
}

// seen waits until the tools of GitOps think so of the DaemonSet and of its rollout.
func (b *beside) seen(t *testing.T, flux, argo string) {
	t.Helper()
	await(t, fmt.Sprintf("Flux sees %s and Argo CD %s", flux, argo), func(ctx context.Context) error {
		for _, kind := range []schema.GroupVersionResource{daemonSets, changes} {
			obj, err := b.read(ctx, kind, "agent")
			if err != nil {
				return err
			}
			health, message := gitops.ArgoCD(t, obj)
			if is := gitops.Flux(t, obj); is != flux || health != argo {
				return fmt.Errorf("of its %s they see %s and %s: %s", kind.Resource, is, health, message)
			}
		}
		return nil
	})
}

// same wants what is applied to be what is stored, for every way to apply: GitOps must find nothing to put right.
func (b *beside) same(t *testing.T, file string) {
	t.Helper()
	stored, err := b.read(t.Context(), daemonSets, "agent")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		nil, {"--server-side", "--force-conflicts", "--field-manager=argocd-controller"},
		{"--server-side", "--force-conflicts", "--field-manager=kustomize-controller"},
	} {
		args = append([]string{"apply", "-f", file, "--dry-run=server", "-o", "json"}, args...)
		applied := &unstructured.Unstructured{}
		err = applied.UnmarshalJSON([]byte(b.kubectl(t, args...)))
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range []*unstructured.Unstructured{stored, applied} {
			u.SetManagedFields(nil)
			u.SetResourceVersion("")
			unstructured.RemoveNestedField(u.Object, "status") // kube-controller-manager writes it meanwhile
		}
		have, want := fmt.Sprint(applied.Object), fmt.Sprint(stored.Object)
		if have != want {
			t.Errorf("kubectl %s gives\n%s\nand stored is\n%s", strings.Join(args, " "), have, want)
		}
	}
	b.run(t, "kubectl", "diff", "-f", file).ends(t, 0)
}
