package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// TestWhoseAPIServerItIs: on another one than Everynode's its kinds are definitions.
func TestWhoseAPIServerItIs(t *testing.T) {
	for code, want := range map[int]string{200: "true <nil>", 403: "false <nil>", 404: "false <nil>",
		422: "false read the definition of RolloutPolicies: it does not answer"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path != "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rolloutpolicies.everynode.io" {
				t.Errorf("it asked for %s", q.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			reason := map[int]string{403: "Forbidden", 404: "NotFound"}[code]
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"it does not answer"}`, code, reason)
		}))
		l, err := newLists(&rest.Config{Host: server.URL}, "default")
		if err != nil {
			t.Fatal(err)
		}
		foreign, err := l.foreign(t.Context())
		if got := fmt.Sprint(foreign, " ", err); got != want {
			t.Errorf("answer %d: %s, want %s", code, got, want)
		}
		server.Close()
	}
}
