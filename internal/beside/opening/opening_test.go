package opening

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	everynode "github.com/everynode/everynode/api/client"
)

// TestWhenNodeStartupsAreFollowed: once the API has the kind and we the rights, and not before; never on our own.
func TestWhenNodeStartupsAreFollowed(t *testing.T) {
	const list, definition, review = "/apis/everynode.io/v1alpha1/nodestartups", Definition,
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	for name, c := range map[string]struct {
		path string
		code int
		may  bool
		want string
	}{
		"all is well":          {"", 0, true, ""},
		"no kind":              {list, http.StatusNotFound, true, "print-crds"},
		"no right to read":     {list, http.StatusForbidden, true, "apply rules.yaml again"},
		"no answer":            {list, http.StatusInternalServerError, true, "list"},
		"our own":              {definition, http.StatusNotFound, true, errOwn.Error()},
		"not knowing whose":    {definition, http.StatusForbidden, true, "apply rules.yaml again"},
		"no right to patch":    {"", 0, false, "apply rules.yaml again"},
		"nobody knows the may": {review, http.StatusInternalServerError, true, "find out whether Nodes may be patched"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == c.path {
				w.WriteHeader(c.code)
				return
			}
			switch r.URL.Path {
			case list:
				fmt.Fprint(w, `{"kind":"NodeStartupList","apiVersion":"everynode.io/v1alpha1"}`)
			case review:
				fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, c.may)
			default:
				fmt.Fprint(w, `{}`)
			}
		}))
		own, err := everynode.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		a := Asker{API: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}), Own: own, Rules: "rules.yaml"}
		err = a.may(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.want == "" || errors.Is(err, errOwn) {
			if got := a.Await(t.Context()); got != (c.want == "") {
				t.Errorf("%s: it is followed: %v", name, got)
			}
		}
		server.Close()
	}
}

// TestAWriteOfANodeThatIsAnotherIsAConflict: the next look knows more, so it is no failure.
func TestAWriteOfANodeThatIsAnotherIsAConflict(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}}
	client := fake.NewClientset(n)
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), "a", nil)
	})
	err := Writer{API: client}.SetGate(t.Context(), n, nil, nil, nil)
	if !apierrors.IsConflict(err) {
		t.Errorf("the answer is %v", err)
	}
}
