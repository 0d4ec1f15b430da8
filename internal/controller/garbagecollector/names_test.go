package garbagecollector

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// TestNamesThatArePaths asks for objects whose names lead to other kinds. Whoever has a
// name in an owner reference, or a server of others, could have anything read and deleted.
func TestNamesThatArePaths(t *testing.T) {
	client := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	things := Resource{GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"},
		GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, Namespaced: true}
	api := &metadataAPI{client, newKinds([]Resource{things})}
	for name, id := range map[string]graph.Identity{
		"the name":      {APIVersion: "example.com/v1", Kind: "Thing", Namespace: "ns", Name: "../../../../../../api/v1/nodes/n1", UID: "1"},
		"the namespace": {APIVersion: "example.com/v1", Kind: "Thing", Namespace: "../../../../api/v1/namespaces/kube-system/secrets", Name: "x", UID: "1"},
		"dots":          {APIVersion: "example.com/v1", Kind: "Thing", Namespace: "ns", Name: "..", UID: "1"},
		"an escape":     {APIVersion: "example.com/v1", Kind: "Thing", Namespace: "ns", Name: "%2e%2e%2f", UID: "1"},
	} {
		_, get := api.Get(t.Context(), id)
		_, patch := api.Patch(t.Context(), id, types.MergePatchType, []byte("{}"))
		for verb, err := range map[string]error{"get": get, "patch": patch, "delete": api.Delete(t.Context(), id, metav1.DeleteOptions{})} {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s, %s: %v", name, verb, err)
			}
		}
	}
	if asked := client.Actions(); len(asked) > 0 {
		t.Errorf("the API is asked: %v", asked)
	}
}
