package garbagecollector

import (
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// TestNamesThatArePaths asks for objects whose names lead to other kinds. Whoever has a
// name in an owner reference, or a server of others, could have anything read and deleted.
func TestNamesThatArePaths(t *testing.T) {
	client := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	things := Resource{GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"},
		GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, Namespaced: true}
	api := &metadataAPI{client: client, kinds: newKinds([]Resource{things})}
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

// TestListsThatNeverEnd looks for what an owner leaves behind among kinds of others, of which one server has page after page.
// Those of another are found nevertheless.
func TestListsThatNeverEnd(t *testing.T) {
	kind := func(name string) Resource {
		return Resource{GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: strings.ToLower(name) + "s"},
			GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: name}, Namespaced: true}
	}
	client := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	page := func(next string) *metav1.List {
		item := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Any"},
			ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "2", OwnerReferences: []metav1.OwnerReference{{UID: "1"}}}}
		return &metav1.List{ListMeta: metav1.ListMeta{Continue: next}, Items: []runtime.RawExtension{{Object: item}}}
	}
	client.PrependReactor("list", "endlesss", func(clienttesting.Action) (bool, runtime.Object, error) { return true, page("more"), nil })
	client.PrependReactor("list", "honests", func(clienttesting.Action) (bool, runtime.Object, error) { return true, page(""), nil })
	known := newKinds(nil)
	known.set([]Resource{kind("Endless"), kind("Honest")})
	api := &metadataAPI{client: client, kinds: known, patience: 200 * time.Millisecond}
	type answer struct {
		found []graph.Identity
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		found, err := api.Dependents(t.Context(), graph.Identity{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "o", UID: "1"})
		done <- answer{found, err}
	}()
	select {
	case a := <-done:
		if a.err != nil || !slices.ContainsFunc(a.found, func(id graph.Identity) bool { return id.Kind == "Honest" }) {
			t.Errorf("found %v, %v, want the one of the honest server too", a.found, a.err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it still lists")
	}
}
