package inprocess

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// repeated is words without an end.
type repeated struct {
	words string
	at    int
}

func (r *repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.words[r.at%len(r.words)]
		r.at++
	}
	return len(p), nil
}

func TestBoundedReads(t *testing.T) {
	event := `{"type":"ADDED","object":{"a":"}{\"[","b":[1,{"c":2}]}}` + "\n"
	for name, c := range map[string]struct {
		query, kind string
		body        io.Reader
		want        string
	}{
		"a list":                {"", "application/json", strings.NewReader(strings.Repeat("x", 1<<20)), ""},
		"a list without an end": {"limit=500", "application/json", &repeated{words: "xx"}, "more than"},
		"a watch of many events": {"watch=true", "application/json",
			strings.NewReader(strings.Repeat(event, 200_000)), ""},
		"a watch of one event, and no end": {"watch=1", "application/json",
			io.MultiReader(strings.NewReader(event), &repeated{words: `{"a":`}), "an event of the watch has no end"},
		"a watch of one string": {"watch=true", "application/json",
			io.MultiReader(strings.NewReader(`{"a":"`), &repeated{words: `\"`}), "an event of the watch has no end"},
		"a watch of brackets": {"watch=true", "application/yaml", &repeated{words: `[`},
			"an event of the watch has no end"},
		"a watch of packed events": {"watch=true", "application/vnd.kubernetes.protobuf;stream=watch",
			strings.NewReader(strings.Repeat("[", eventLimit+1)), ""},
	} {
		response := &http.Response{Header: http.Header{"Content-Type": {c.kind}}, Body: io.NopCloser(c.body),
			Request: httptest.NewRequest(http.MethodGet, "/apis/example.com/v1/things?"+c.query, http.NoBody)}
		boundedReads(response)
		n, err := io.Copy(io.Discard, response.Body)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v after %d bytes, want %q", name, err, n, c.want)
		}
		if n > readLimit+1<<20 {
			t.Errorf("%s: %d bytes are read", name, n)
		}
	}
	// An event of a hundred events' size is one as well.
	large := `{"a":"` + strings.Repeat("x", eventLimit-100) + `"}`
	bounded := &boundedEvents{ReadCloser: io.NopCloser(strings.NewReader(large + large))}
	if _, err := io.Copy(io.Discard, bounded); errors.Is(err, errEvent) {
		t.Errorf("two large events: %v", err)
	}
}
