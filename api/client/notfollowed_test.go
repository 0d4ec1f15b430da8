package client

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/api/v1alpha1"
)

// stored is a policy of an API that knows more than this program, which keeps what is written.
type stored struct {
	text      string
	writes    int
	conflicts int // are answered first
}

func (s *stored) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("fieldSelector") == "metadata.name=x":
		fmt.Fprintf(w, `{"apiVersion":"everynode.io/v1alpha1","kind":"RolloutPolicyList","metadata":{},"items":[%s]}`, s.text)
	case r.Method == http.MethodGet:
		fmt.Fprint(w, s.text)
	case s.conflicts > 0:
		s.conflicts--
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
	case r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/namespaces/a/rolloutpolicies/x/status"):
		body, _ := io.ReadAll(r.Body)
		s.text, s.writes = string(body), s.writes+1
		fmt.Fprint(w, s.text)
	default:
		w.WriteHeader(http.StatusTeapot)
	}
}

// Where the API knows a field that this program does not, the object's conditions stop saying that it holds, and nothing
// else of it changes.
func TestConditionsOfWhatIsNotFollowed(t *testing.T) {
	const policy = `{"apiVersion":"everynode.io/v1alpha1","kind":"RolloutPolicy","metadata":{"name":"x","namespace":"a",` +
		`"uid":"u","generation":7},"spec":{"quorum":9007199254740993},"status":{"conditions":[{"type":"Valid",` +
		`"status":"True","reason":"Valid","message":"","lastTransitionTime":"2026-08-01T12:00:00Z"}],"ghosts":1}}`
	s := &stored{text: policy, conflicts: 1}
	server := httptest.NewServer(s)
	defer server.Close()
	c, err := NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	say := func() {
		t.Helper()
		p, err := c.RolloutPolicies("a").Get(t.Context(), "x", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SayNotFollowed(t.Context(), p); err != nil {
			t.Error(err)
		}
	}
	say()
	for _, want := range []string{
		`"quorum":9007199254740993`, `"ghosts":1`, `"generation":7`, `"status":"Unknown"`, `"reason":"NotFollowed"`, "spec.quorum",
	} {
		if s.writes != 1 || !strings.Contains(s.text, want) {
			t.Errorf("after %d writes it lacks %s: %s", s.writes, want, s.text)
		}
	}
	say()
	if s.writes != 1 || strings.Contains(s.text, "unknown-fields") {
		t.Errorf("after %d writes it is %s", s.writes, s.text)
	}
	// Another one of the name is left alone, and so is one of which all is known.
	s.text = policy
	if err := c.SayNotFollowed(t.Context(), &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x",
		UID: "other", Annotations: map[string]string{"everynode.io/unknown-fields": "spec.quorum"}}}); err != nil || s.writes != 1 {
		t.Errorf("%d writes: %v", s.writes, err)
	}
	if err := c.SayNotFollowed(t.Context(), &v1alpha1.RolloutPolicy{}); err != nil {
		t.Error(err)
	}
}
