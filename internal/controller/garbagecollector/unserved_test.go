package garbagecollector

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/controller/garbagecollector/graph"
)

// An object is gone where the API says so. Where it says that it does not know the path, a version of the kind is not
// served any more, and its objects may be there by another.
func TestAVersionThatIsNotServedIsNoObjectThatIsGone(t *testing.T) {
	group := schema.GroupVersion{Group: "example.com", Version: "v1"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/things/") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		gone := apierrors.NewNotFound(schema.GroupResource{Group: group.Group, Resource: "things"}, "x").Status()
		gone.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		_ = json.NewEncoder(w).Encode(gone)
	}))
	defer server.Close()
	client, err := metadata.NewForConfig(&restclient.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	kind := func(name string) Resource {
		return Resource{GVR: group.WithResource(strings.ToLower(name) + "s"), GVK: group.WithKind(name), Namespaced: true}
	}
	api := &metadataAPI{client: client, kinds: newKinds([]Resource{kind("Thing"), kind("Other")})}
	for name, gone := range map[string]bool{"Thing": true, "Other": false} {
		id := graph.Identity{APIVersion: group.String(), Kind: name, Namespace: "ns", Name: "x", UID: "1"}
		_, get := api.Get(t.Context(), id)
		_, patch := api.Patch(t.Context(), id, types.MergePatchType, []byte("{}"))
		remove := api.Delete(t.Context(), id, metav1.DeleteOptions{})
		for verb, err := range map[string]error{"get": get, "patch": patch, "delete": remove} {
			if err == nil || apierrors.IsNotFound(err) != gone {
				t.Errorf("%s %s: %v", verb, name, err)
			}
		}
	}
}
