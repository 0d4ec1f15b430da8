package quorum

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// requested is a request whose meaning is known.
func requested(ctx context.Context, verb, path string, resource bool) *http.Request {
	info := &request.RequestInfo{Verb: verb, IsResourceRequest: resource, APIVersion: "v1", Resource: "pods", Path: path}
	return httptest.NewRequestWithContext(request.WithRequestInfo(ctx, info), http.MethodGet, path, nil)
}

func TestGuard(t *testing.T) {
	const spared = "/spared"
	isSpared := func(r *http.Request) bool { return r.URL.Path == spared }
	for _, test := range []struct {
		name, verb, path string
		other            bool
		// ends tells that it ends without a quorum and that no other begins, refused only that none begins.
		ends, refused bool
	}{
		{name: "a watch", verb: "watch", path: "/api/v1/pods", ends: true, refused: true},
		{name: "a log that is followed", verb: "get", path: "/api/v1/namespaces/a/pods/b/log"},
		{name: "a watch that is spared", verb: "watch", path: spared},
		{name: "a list from memory", verb: "list", path: "/api/v1/pods?resourceVersion=0", refused: true},
		{name: "a pod from memory", verb: "get", path: "/api/v1/namespaces/a/pods/b?resourceVersion=0", refused: true},
		{name: "a list from the database", verb: "list", path: "/api/v1/pods"},
		{name: "no resource", verb: "watch", path: "/everynode/v1/watch", other: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				led, lose := context.WithCancelCause(t.Context())
				now := led
				served := 0
				guard := Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					served++
					<-r.Context().Done()
				}), scheme.Codecs, func() context.Context { return now }, isSpared)
				begin := func() (answer *httptest.ResponseRecorder, stop func(), over *bool) {
					ctx, stop := context.WithCancel(t.Context())
					answer, over = httptest.NewRecorder(), new(bool)
					go func() {
						guard.ServeHTTP(answer, requested(ctx, test.verb, test.path, !test.other))
						*over = true
					}()
					synctest.Wait()
					return answer, stop, over
				}

				_, stop, over := begin()
				if *over {
					t.Fatal("it ends while there is a quorum")
				}
				if err := Ready(func() context.Context { return now }).Check(nil); err != nil {
					t.Error(err)
				}
				lose(errors.New("it has been alone since noon"))
				if err := Ready(func() context.Context { return now }).Check(nil); err == nil ||
					!strings.Contains(err.Error(), "alone since noon") {
					t.Errorf("without a quorum the check says %v", err)
				}
				synctest.Wait()
				if *over != test.ends {
					t.Errorf("without a quorum it has ended: %t", *over)
				}
				stop()

				answer, stop, over := begin()
				if *over != test.refused || (served == 1) != test.refused {
					t.Errorf("without a quorum a new one is refused: %t, and the API has had %d", *over, served)
				}
				if got := answer.Result(); test.refused && (got.StatusCode != http.StatusServiceUnavailable ||
					got.Header.Get("Retry-After") == "" || got.Header.Get("Connection") != "close" ||
					!strings.Contains(answer.Body.String(), "alone since noon")) {
					t.Errorf("the answer is %s %v %s", got.Status, got.Header, answer.Body)
				}
				stop()

				now = t.Context()
				_, stop, over = begin()
				if *over {
					t.Error("with a quorum again it is refused")
				}
				stop()
				synctest.Wait()
				if !*over {
					t.Error("it goes on after its client has gone")
				}
			})
		})
	}
}

// A client that was refused makes a new connection, at which a balancer can lead it to another server: also with
// HTTP/2, in which all requests of a client share one.
func TestRefusedClientsMove(t *testing.T) {
	lost, lose := context.WithCancel(t.Context())
	lose()
	guard := Guard(nil, scheme.Codecs, func() context.Context { return lost }, func(*http.Request) bool { return false })
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard.ServeHTTP(w, requested(r.Context(), "watch", "/", true))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	ask := func() (reused bool) {
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.ProtoMajor != 2 {
			t.Fatalf("the test speaks %s", response.Proto)
		}
		return reused
	}
	ask()
	for range 1000 { // It may ask some times more before it has heard that it is to go.
		if !ask() {
			return
		}
	}
	t.Error("it stays at its connection")
}
