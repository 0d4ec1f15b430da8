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
	// defined says that there are definitions of policies and rollouts.
	defined bool
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
	all, watches, turned, defined := s.all, s.watches, s.turned, s.defined
	s.mu.Unlock()
	kind := map[string]string{"nodes": "NodeList", "pods": "PodList", "daemonsets": "DaemonSetList", "controllerrevisions": "ControllerRevisionList"}[path.Base(r.URL.Path)]
	if defined && kind == "" {
		kind = map[string]string{"rolloutpolicies": "RolloutPolicyList", "daemonsetrollouts": "DaemonSetRolloutList"}[path.Base(r.URL.Path)]
	}
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
		switch {
		case strings.Contains(r.URL.Path, "/apps/"):
			version = "apps/v1"
		case strings.Contains(r.URL.Path, "/everynode.io/"):
			version = "everynode.io/v1alpha1"
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
	d.cluster.again = 20 * time.Millisecond
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

// TestKindsThatAreAddedLater are noticed while the page is open.
func TestKindsThatAreAddedLater(t *testing.T) {
	s, d := refusing(t, false, false)
	response := stream(t, d)
	defer time.AfterFunc(time.Minute, func() { _ = response.Body.Close() }).Stop()
	lines := json.NewDecoder(response.Body)
	for defined := false; ; {
		var m message
		if err := lines.Decode(&m); err != nil {
			t.Fatalf("the page is not told: %v", err)
		}
		switch {
		case m.Overview == nil:
		case m.Overview.Hidden == "" && defined:
			return
		case m.Overview.Hidden == "":
			t.Fatal("the kinds are known before they are there")
		case !defined:
			defined = true
			s.mu.Lock()
			s.defined = true
			s.mu.Unlock()
		}
	}
}
