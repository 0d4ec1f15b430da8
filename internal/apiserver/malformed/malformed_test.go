package malformed

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		info  request.RequestInfo
		query string
		want  string
	}{
		"an object":               {info: request.RequestInfo{Verb: "get", Namespace: "a", Name: "b"}},
		"an object, fresh enough": {info: request.RequestInfo{Verb: "get", Name: "b"}, query: "resourceVersion=10"},
		"all":                     {info: request.RequestInfo{Verb: "list"}},
		"a namespace above": {info: request.RequestInfo{Verb: "list", Namespace: ".."},
			want: `Namespace parameter invalid: "..": may not be '..'`},
		"a namespace with a path": {info: request.RequestInfo{Verb: "create", Namespace: "a/b"},
			want: `Namespace parameter invalid: "a/b": may not contain '/'`},
		"a name above": {info: request.RequestInfo{Verb: "watch", Name: ".."},
			want: `Name parameter invalid: "..": may not be '..'`},
		"a version that is none": {info: request.RequestInfo{Verb: "get", Name: "b"}, query: "resourceVersion=x",
			want: `resourceVersion: Invalid value: "x": is not a number`},
		"a watch from nowhere": {info: request.RequestInfo{Verb: "watch"}, query: "resourceVersion=x",
			want: `resourceVersion: Invalid value: "x": is not a number`},
		"a list tells it by itself": {info: request.RequestInfo{Verb: "list"}, query: "resourceVersion=x"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := nonsense(&c.info, httptest.NewRequest(http.MethodGet, "/?"+c.query, nil)); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
