package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

// of is an object of a kind as an API with newer definitions answers it, with a field that nobody here knows.
func of(kind string) string {
	return fmt.Sprintf(`{"apiVersion":"everynode.io/v1alpha1","kind":%q,"metadata":{"name":"x","namespace":"a"},"spec":{"quorum":3}}`, kind)
}

// elsewhere is an API whose definitions are newer than this program.
func elsewhere(t *testing.T) *Client {
	t.Helper()
	kinds := map[string]string{"rolloutpolicies": "RolloutPolicy", "daemonsetrollouts": "DaemonSetRollout",
		"daemonsetvariants": "DaemonSetVariant", "nodestartups": "NodeStartup"}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/everynode.io/v1alpha1/"), "/")
		if path[0] == "namespaces" {
			path = path[2:]
		}
		kind := kinds[path[0]]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet:
			t.Errorf("%s %s is sent", r.Method, r.URL)
		case r.URL.Query().Get("watch") != "":
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", of(kind))
		case len(path) == 1:
			fmt.Fprintf(w, `{"apiVersion":"everynode.io/v1alpha1","kind":"%sList","metadata":{},"items":[%s]}`, kind, of(kind))
		default:
			fmt.Fprint(w, of(kind))
		}
	}))
	t.Cleanup(s.Close)
	c, err := NewForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Whatever way an object is read, it says what it holds that nobody here knows.
func TestObjectsOfNewerDefinitions(t *testing.T) {
	c := elsewhere(t)
	for _, object := range []runtime.Object{&v1alpha1.RolloutPolicy{}, &v1alpha1.DaemonSetRollout{}, &v1alpha1.DaemonSetVariant{}, &v1alpha1.NodeStartup{}} {
		by := cache.ToListerWatcherWithContext(c.ListWatch(object))
		list, err := by.ListWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		says := ""
		switch list := list.(type) {
		case *v1alpha1.RolloutPolicyList:
			says = newer.Fields(&list.Items[0])
		case *v1alpha1.DaemonSetRolloutList:
			says = newer.Fields(&list.Items[0])
		case *v1alpha1.DaemonSetVariantList:
			says = newer.Fields(&list.Items[0])
		case *v1alpha1.NodeStartupList:
			says = newer.Fields(&list.Items[0])
		}
		if says != "spec.quorum" {
			t.Errorf("%T: a list says %q", object, says)
		}
		w, err := by.WatchWithContext(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if e := <-w.ResultChan(); newer.Fields(e.Object.(metav1.Object)) != "spec.quorum" {
			t.Errorf("%T: a watch says %+v", object, e)
		}
		w.Stop()
	}
	if c.ListWatch(&metav1.Status{}) != nil {
		t.Error("another kind is read by this client")
	}
	strange, err := c.Strange(t.Context())
	if err != nil || fmt.Sprint(strange) != "[rolloutpolicy a/x daemonsetrollout a/x daemonsetvariant a/x nodestartup a/x]" {
		t.Errorf("the objects with such fields are %v: %v", strange, err)
	}
}

// What would lose it is not sent.
func TestObjectsOfNewerDefinitionsAreNotWritten(t *testing.T) {
	policies := elsewhere(t).RolloutPolicies("a")
	p, err := policies.Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, update := policies.Update(t.Context(), p, metav1.UpdateOptions{})
	_, status := policies.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	for _, err := range []error{update, status} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.quorum") {
			t.Errorf("the write ends with %v", err)
		}
	}
}
