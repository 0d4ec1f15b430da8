package beside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
)

// slow is an API with many nodes that are closed, and as many pods with notes. Each write takes a second, and a node
// that was written is open.
type slow struct {
	many int

	mu        sync.Mutex
	opened    map[string]bool
	now, most int
	marks     int
}

// RoundTrip implements http.RoundTripper.
func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		s.begin(r.URL.Path)
		time.Sleep(time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out any = metav1.ObjectMeta{}
	switch r.Method + " " + r.URL.Path {
	case "GET /api/v1/nodes":
		out = s.nodes()
	case "GET /api/v1/pods":
		out = s.pods()
	}
	if r.Method == http.MethodPatch {
		s.now--
	}
	raw, err := json.Marshal(out)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(raw)), Request: r}, err
}

func (s *slow) begin(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now++
	s.most = max(s.most, s.now)
	s.opened[path] = true
	if strings.Contains(path, "/secrets/") {
		s.marks++
	}
}

func (s *slow) nodes() (list corev1.NodeList) {
	for i := range s.many {
		name := fmt.Sprint("node-", i)
		if !s.opened["/api/v1/nodes/"+name] {
			list.Items = append(list.Items, *closedNode(name))
		}
	}
	return list
}

func (s *slow) pods() (list corev1.PodList) {
	for i := range s.many {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint(i)),
			Annotations: map[string]string{fetchpod.NoteName: "{}"}}})
	}
	return list
}

// TestLeavingManyNodes: of a large fleet several are written at a time, it is said how far that is, and that it takes
// longer than controllers may need to hear of it is no sign that one writes against it.
func TestLeavingManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &slow{many: 800, opened: map[string]bool{}}
		client, err := kubernetes.NewForConfigAndClient(&rest.Config{QPS: -1}, &http.Client{Transport: api})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		l := &Leaver{client: client, Out: &out, Options: Options{Namespace: "kube-system", Secret: "everynode-webhook"}}
		for what, leave := range map[string]func() error{
			"nodes are without marks": func() error { return l.openNodes(t.Context()) },
			"pods are without notes":  func() error { return l.takeNotes(t.Context()) },
		} {
			began := time.Now()
			out.Reset()
			api.marks = 0
			err := leave()
			if err != nil {
				t.Fatalf("%v: it says %s", err, &out)
			}
			if took := time.Since(began); took < time.Duration(api.many/leavers)*time.Second || took > 2*time.Minute {
				t.Errorf("%s: it has taken %s, with %d writes at a time", what, took, api.most)
			}
			if n := strings.Count(out.String(), fmt.Sprintf(" of %d %s ...", api.many, what)); n < 3 || api.marks != n {
				t.Errorf("%s: it says %s, and %d times that somebody leaves", what, &out, api.marks)
			}
		}
		if api.most != leavers {
			t.Errorf("%d are written at a time, want %d", api.most, leavers)
		}
	})
}

// TestLeavingStopsAtAnError, and begins nothing more.
func TestLeavingStopsAtAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why, begun := errors.New("no"), 0
		var mu sync.Mutex
		err := crew{io.Discard, nil}.each(t.Context(), 1000, "", func(context.Context, int) error {
			mu.Lock()
			defer mu.Unlock()
			begun++
			return why
		})
		if !errors.Is(err, why) || begun > 2*leavers {
			t.Errorf("it returns %v after %d", err, begun)
		}
	})
}
