package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// listing is a request for a list of pods as the API's library hands it on.
func listing(ctx context.Context, namespace, query, name string, groups ...string) *http.Request {
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods", Namespace: namespace})
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name, Groups: groups})
	return httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?"+query, nil)
}

func TestFullListsTakeTurns(t *testing.T) {
	turns := make(chan struct{}, 1)
	clk := clocktesting.NewFakeClock(time.Now())
	served := 0
	handler := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }), scheme.New(nil), turns, clk)
	const account = "system:serviceaccount:a:b"
	ask := func(namespace, query, name string, groups ...string) int {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, listing(ctx, namespace, query, name, groups...))
		return w.Code
	}
	if code := ask("", "", account); code != http.StatusOK || served != 1 {
		t.Errorf("the only one: %d", code)
	}
	waitTurns(t, clk, turns, 0)
	turns <- struct{}{} // Somebody's turn does not end.
	for name, c := range map[string]struct {
		namespace, query, user string
		groups                 []string
		waits                  bool
	}{
		"all pods":                    {"", "", account, nil, true},
		"all pods with a label":       {"", "labelSelector=a", account, nil, true},
		"a page that is no page":      {"", "limit=50000", account, nil, true},
		"a limit that is none":        {"", "limit=x", "jane", nil, true},
		"nobody in particular":        {"", "", user.Anonymous, nil, true},
		"a page":                      {"", "limit=500", account, nil, false},
		"those of a namespace":        {"default", "", account, nil, false},
		"those of a node":             {"", "fieldSelector=spec.nodeName%3Dn", account, nil, false},
		"an administrator":            {"", "", "admin", []string{user.SystemPrivilegedGroup}, false},
		"a node":                      {"", "", "system:node:n", []string{user.NodesGroup}, false},
		"a part of the cluster":       {"", "", "system:kube-scheduler", nil, false},
		"a controller in kube-system": {"", "", "system:serviceaccount:kube-system:x", []string{"system:serviceaccounts:kube-system"}, false},
	} {
		want := http.StatusOK
		if c.waits {
			want = http.StatusGatewayTimeout
		}
		if code := ask(c.namespace, c.query, c.user, c.groups...); code != want {
			t.Errorf("%s: %d, want %d", name, code, want)
		}
	}
	<-turns
	if code := ask("", "", account); code != http.StatusOK {
		t.Errorf("after that turn: %d", code)
	}
}

// waitTurns waits until that many turns are taken, or rest.
func waitTurns(t *testing.T, clk *clocktesting.FakeClock, turns chan struct{}, want int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(turns) != want; time.Sleep(time.Millisecond) {
		clk.Step(0)
		if time.Now().After(deadline) {
			t.Fatalf("%d turns are taken or rest, want %d", len(turns), want)
		}
	}
}

// A turn that was used for long rests for as long, but not for ever.
func TestTurnsRest(t *testing.T) {
	for took, rest := range map[time.Duration]time.Duration{100 * time.Millisecond: 100 * time.Millisecond, time.Minute: maxRest} {
		turns := make(chan struct{}, 1)
		clk := clocktesting.NewFakeClock(time.Now())
		handler := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { clk.Step(took) }), scheme.New(nil), turns, clk)
		handler.ServeHTTP(httptest.NewRecorder(), listing(t.Context(), "", "", "jane"))
		clk.Step(rest - time.Millisecond)
		if len(turns) != 1 {
			t.Errorf("after a list of %s the next may begin at once", took)
		}
		clk.Step(time.Millisecond)
		waitTurns(t, clk, turns, 0)
	}
}

func TestTurnEndsWithAPanic(t *testing.T) {
	turns := make(chan struct{}, 1)
	clk := clocktesting.NewFakeClock(time.Now())
	handler := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), scheme.New(nil), turns, clk)
	func() {
		defer func() { _ = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), listing(t.Context(), "", "", strings.Repeat("a", 3)))
	}()
	waitTurns(t, clk, turns, 0)
}
