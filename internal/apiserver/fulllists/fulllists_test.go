package fulllists

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/apiserver/listsize"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// listing is a request for a list of pods as the API's library hands it on.
func listing(ctx context.Context, namespace, query, name string, groups ...string) *http.Request {
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1",
		Resource: "pods", Namespace: namespace})
	ctx = request.WithUser(ctx, &user.DefaultInfo{Name: name, Groups: groups})
	return httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/pods?"+query, nil)
}

func inTurn(api http.Handler, turns chan struct{}, c *clocktesting.FakeClock) http.Handler {
	return &byTurns{api: api, types: scheme.New(nil), turns: turns, clock: c, sizes: listsize.New()}
}

func TestFullListsTakeTurns(t *testing.T) {
	turns := make(chan struct{}, 1)
	clk := clocktesting.NewFakeClock(time.Now())
	served := 0
	handler := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }), turns, clk)
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
		"all pods":               {"", "", account, nil, true},
		"all pods with a label":  {"", "labelSelector=a", account, nil, true},
		"a page that is no page": {"", "limit=50000", account, nil, true},
		"a limit that is none":   {"", "limit=x", "jane", nil, true},
		"nobody in particular":   {"", "", user.Anonymous, nil, true},
		"a page that is all":     {"", "limit=500&resourceVersion=0", account, nil, true},
		"all but one":            {"", "fieldSelector=metadata.name%21%3Dx", account, nil, true},
		"those of no node":       {"", "fieldSelector=spec.nodeName%3D", account, nil, true},
		"those that run":         {"", "fieldSelector=status.phase%3DRunning", account, nil, true},
		"a page":                 {"", "limit=500", account, nil, false},
		"a page of a version":    {"", "limit=500&resourceVersion=7", account, nil, false},
		"those of a name": {"", "fieldSelector=status.phase%3DRunning,metadata.name%3Dx", account, nil,
			false},
		"those of a namespace":  {"default", "", account, nil, false},
		"those of a node":       {"", "fieldSelector=spec.nodeName%3Dn", account, nil, false},
		"an administrator":      {"", "", "admin", []string{user.SystemPrivilegedGroup}, false},
		"a node":                {"", "", "system:node:n", []string{user.NodesGroup}, false},
		"a part of the cluster": {"", "", "system:kube-scheduler", nil, false},
		"a controller in kube-system": {"", "", "system:serviceaccount:kube-system:x",
			[]string{"system:serviceaccounts:kube-system"}, false},
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

// A watch that begins with all objects has a turn until it has sent them; one of changes alone has none.
func TestStartsOfWatchesTakeTurns(t *testing.T) {
	for query, want := range map[string]int{
		"": 1, "resourceVersion=0": 1, "sendInitialEvents=true&resourceVersion=7": 1,
		"resourceVersion=7": 0, "fieldSelector=spec.nodeName%3Dn": 0,
	} {
		turns := make(chan struct{}, 1)
		clk := clocktesting.NewFakeClock(time.Now())
		signalled := flowcontrol.NewInitializationSignal()
		handler := inTurn(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if len(turns) != want {
				t.Errorf("%q: while it sends what there is, %d turns are taken, want %d", query, len(turns), want)
			}
			flowcontrol.WatchInitialized(r.Context())
			waitTurns(t, clk, turns, 0) // The watch goes on.
		}), turns, clk)
		r := watching(flowcontrol.WithInitializationSignal(t.Context(), signalled), query)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		signalled.Wait()
	}
	// One that is read too slowly does not keep its turn.
	turns := make(chan struct{}, 1)
	clk := clocktesting.NewFakeClock(time.Now())
	inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		clk.Step(maxTurn)
		clk.Step(maxRest)
		waitTurns(t, clk, turns, 0)
	}), turns, clk).ServeHTTP(httptest.NewRecorder(), watching(t.Context(), ""))
	// One that gets no turn is told so.
	clk = clocktesting.NewFakeClock(time.Now())
	turns <- struct{}{}
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a watch begins out of turn") }),
			turns, clk).ServeHTTP(w, watching(t.Context(), ""))
	}()
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clk.Step(maxTurn)
	<-done
	if w.Code != http.StatusGatewayTimeout {
		t.Errorf("a watch that gets no turn: %d", w.Code)
	}
}

func watching(ctx context.Context, query string) *http.Request {
	r := listing(ctx, "", query, "jane")
	info, _ := request.RequestInfoFrom(r.Context())
	info.Verb = "watch"
	return r
}

// Lists of a namespace wait once one has been long, until one is not.
func TestLongListsOfANamespaceTakeTurns(t *testing.T) {
	turns := make(chan struct{}, 1)
	clk := clocktesting.NewFakeClock(time.Now())
	size, taken := 5<<20, 0
	handler := inTurn(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		taken = len(turns)
		if size < 0 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if _, err := w.Write(make([]byte, size)); err != nil {
			t.Error(err)
		}
	}), turns, clk)
	for _, step := range []struct {
		namespace   string
		size, taken int
	}{{"a", 5 << 20, 0}, {"b", 10, 0}, {"a", -1, 1}, {"a", 10, 1}, {"a", 10, 0}, {"b", 10, 0}} {
		size = step.size
		handler.ServeHTTP(httptest.NewRecorder(), listing(t.Context(), step.namespace, "", "jane"))
		if taken != step.taken {
			t.Errorf("%+v: %d turns are taken", step, taken)
		}
		waitTurns(t, clk, turns, 0)
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
	for took, rest := range map[time.Duration]time.Duration{100 * time.Millisecond: 100 * time.Millisecond,
		time.Minute: maxRest} {
		turns := make(chan struct{}, 1)
		clk := clocktesting.NewFakeClock(time.Now())
		handler := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { clk.Step(took) }), turns, clk)
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
	handler := inTurn(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), turns,
		clk)
	func() {
		defer func() { _ = recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), listing(t.Context(), "", "", strings.Repeat("a", 3)))
	}()
	waitTurns(t, clk, turns, 0)
}
