package dashboard

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// refuser is an API server without objects, which may refuse all requests or those to watch.
type refuser struct {
	mu      sync.Mutex // guards all below
	all     bool
	watches bool
	turned  chan struct{}
}

func (s *refuser) turn(all, watches bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.watches = all, watches
	close(s.turned)
	s.turned = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (s *refuser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	all, watches, turned := s.all, s.watches, s.turned
	s.mu.Unlock()
	kind := map[string]string{"nodes": "NodeList", "pods": "PodList", "daemonsets": "DaemonSetList", "controllerrevisions": "ControllerRevisionList"}[path.Base(r.URL.Path)]
	isWatch := r.URL.Query().Get("watch") != ""
	refuse := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"the server says %s"}`, code, reason, reason)
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case kind == "":
		refuse(http.StatusNotFound, "NotFound")
	case all:
		refuse(http.StatusUnauthorized, "Unauthorized")
	case isWatch && watches:
		refuse(http.StatusForbidden, "Forbidden")
	case isWatch && r.URL.Query().Get("sendInitialEvents") != "":
		refuse(http.StatusUnprocessableEntity, "Invalid")
	case isWatch:
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-turned:
		case <-r.Context().Done():
		}
	default:
		version := "v1"
		if strings.Contains(r.URL.Path, "/apps/") {
			version = "apps/v1"
		}
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind, version)
	}
}

func refusing(t *testing.T, all, watches bool) (*refuser, *Dashboard) {
	t.Helper()
	s := &refuser{all: all, watches: watches, turned: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	d, err := Listen(Config{Cluster: &rest.Config{Host: server.URL}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(t.Context()) }()
	t.Cleanup(func() {
		server.CloseClientConnections()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, d
}

func stream(t *testing.T, d *Dashboard) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.listener.Addr().String()+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// TestPageIsToldThatTheClusterCannotBeRead: what is shown may be old then, as after the end of a token.
func TestPageIsToldThatTheClusterCannotBeRead(t *testing.T) {
	s, d := refusing(t, false, false)
	told := make(chan message)
	response := stream(t, d)
	go func() {
		defer close(told)
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			var m message
			if json.Unmarshal(lines.Bytes(), &m) == nil && m.Overview != nil {
				told <- m
			}
		}
	}()
	until := func(what string, ok func(trouble string) bool) {
		t.Helper()
		last, deadline := "", time.After(time.Minute)
		for {
			select {
			case m, open := <-told:
				if !open {
					t.Fatalf("the stream ends before %s", what)
				}
				if last = m.Overview.Trouble; ok(last) {
					return
				}
			case <-deadline:
				t.Fatalf("%s is not told; the last was %q", what, last)
			}
		}
	}
	until("that all is well", func(trouble string) bool { return trouble == "" })
	s.turn(true, false)
	until("that nothing can be read", func(trouble string) bool {
		return strings.Contains(trouble, "DaemonSets, nodes, pods") && strings.Contains(trouble, "Unauthorized")
	})
	s.turn(false, false)
	until("that all is well again", func(trouble string) bool { return trouble == "" })
	_ = response.Body.Close()
	for range told {
	}
}

// TestWhoMayListButNotWatch is told so, and does not wait for ever.
func TestWhoMayListButNotWatch(t *testing.T) {
	_, d := refusing(t, false, true)
	response := stream(t, d)
	text, _ := bufio.NewReader(response.Body).ReadString('\n')
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "Forbidden") {
		t.Errorf("the stream is answered with %d: %s", response.StatusCode, text)
	}
}

// TestKindsThatAreNotServed are told of on the page, once all else is known.
func TestKindsThatAreNotServed(t *testing.T) {
	_, d := refusing(t, false, false)
	response := stream(t, d)
	defer response.Body.Close()
	var m message
	if err := json.NewDecoder(response.Body).Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m.Overview == nil || !strings.HasPrefix(m.Overview.Hidden, "this cluster does not have RolloutPolicies") {
		t.Errorf("the page is told %+v", m.Overview)
	}
}
