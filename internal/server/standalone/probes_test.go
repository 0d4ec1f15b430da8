package standalone

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A controller that runs alone shows its metrics and says whether it reaches the API.
func TestProbes(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var away error
	p, err := listenForProbes("127.0.0.1:0", func(context.Context) error { return away })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Start(ctx) }()
	get := func(path string) (int, string) {
		t.Helper()
		response, err := http.Get("http://" + p.listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	for _, c := range []struct {
		path string
		away error
		code int
		want string
	}{
		{"/healthz", nil, 200, "ok"},
		{"/readyz", nil, 200, "ok"},
		{"/readyz", errors.New("no route"), 503, "the API does not answer: no route"},
		{"/healthz", errors.New("no route"), 200, "ok"},
		{"/metrics", nil, 200, "go_goroutines"},
		{"/debug/pprof/", nil, 404, ""},
	} {
		away = c.away
		if code, body := get(c.path); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s with %v: got %d %.100q, want %d %q", c.path, c.away, code, body, c.code, c.want)
		}
	}
	for is, want := range map[bool]int{false: http.StatusServiceUnavailable, true: http.StatusOK} {
		away, p.answers = nil, func() bool { return is }
		if code, body := get("/readyz"); code != want {
			t.Errorf("where the webhook answers: %v, it says %d %s", is, code, body)
		}
		if code, _ := get("/healthz"); code != http.StatusOK {
			t.Errorf("where the webhook answers: %v, it is to be started again", is)
		}
	}
	if _, err := listenForProbes(p.listener.Addr().String(), nil); err == nil ||
		!strings.Contains(err.Error(), "choose another address with --listen") {
		t.Errorf("an address that is taken: %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
