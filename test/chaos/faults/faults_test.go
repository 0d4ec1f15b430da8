package faults

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// always rolls one number.
type always int

func (a always) IntN(n int) int { return int(a) % n }

// api counts the writes that reach it.
type api struct {
	mu    sync.Mutex
	calls []string
}

func (a *api) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, req.Method+" "+req.URL.Path)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
}

// TestWritesFailHonestly: a write that is refused does not reach the API, one
// whose answer is lost does, and a conflict has a cause.
func TestWritesFailHonestly(t *testing.T) {
	for _, c := range []struct {
		roll   always
		method string
		code   int // 0 for no answer
		calls  string
	}{
		{0, http.MethodPost, http.StatusInternalServerError, "[]"},
		{1, http.MethodPost, http.StatusTooManyRequests, "[]"},
		{2, http.MethodDelete, http.StatusGatewayTimeout, "[]"},
		{3, http.MethodPut, http.StatusOK, "[PATCH /pods/a PUT /pods/a/status]"},
		{3, http.MethodPost, http.StatusOK, "[POST /pods/a/status]"},
		{4, http.MethodPost, http.StatusGatewayTimeout, "[POST /pods/a/status]"},
		{5, http.MethodPost, 0, "[POST /pods/a/status]"},
		{9, http.MethodPost, http.StatusOK, "[POST /pods/a/status]"},
	} {
		t.Run(fmt.Sprintf("%s rolls %d", c.method, c.roll), func(t *testing.T) {
			a := &api{}
			l := NewLine(a, c.roll)
			l.Flaky(true)
			res, err := l.RoundTrip(httptest.NewRequestWithContext(t.Context(), c.method, "http://api/pods/a/status", nil))
			if (err != nil) != (c.code == 0) || err == nil && res.StatusCode != c.code {
				t.Errorf("answer %v, error %v, want %d", res, err, c.code)
			}
			if got := fmt.Sprint(a.calls); got != c.calls {
				t.Errorf("the API saw %s, want %s", got, c.calls)
			}
		})
	}
}

// TestPauseHoldsAnswersBack: what is sent during a pause arrives after it, and
// who gives up has sent nothing.
func TestPauseHoldsAnswersBack(t *testing.T) {
	a := &api{}
	l := NewLine(a, always(9))
	l.Pause()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodPost, "http://api/pods", nil)); err == nil || len(a.calls) > 0 {
		t.Errorf("a request that was given up during a pause got error %v, and the API saw %v", err, a.calls)
	}
	answered := make(chan error)
	go func() {
		_, err := l.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://api/pods", nil))
		answered <- err
	}()
	l.Heal()
	if err := <-answered; err != nil || len(a.calls) != 1 {
		t.Errorf("after the pause: error %v, the API saw %v", err, a.calls)
	}
}

// TestMixedEventsKeepEachObjectsOrder delivers events of several objects while
// the line is slow.
func TestMixedEventsKeepEachObjectsOrder(t *testing.T) {
	l := NewLine(&api{}, rand.New(rand.NewPCG(1, 1)))
	l.Slow(true)
	const objects, versions = 4, 6
	var (
		mu   sync.Mutex
		last = map[string]int{}
		all  []string
		done = make(chan struct{})
	)
	m := (&View{Line: l, Context: t.Context()}).mix(toolscache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		p := obj.(*corev1.Pod)
		mu.Lock()
		defer mu.Unlock()
		last[p.Name]++
		if fmt.Sprint(last[p.Name]) != p.ResourceVersion {
			t.Errorf("%s came as version %s, want %d", p.Name, p.ResourceVersion, last[p.Name])
		}
		if all = append(all, p.Name); len(all) == objects*versions {
			close(done)
		}
	}})
	for v := range versions {
		for o := range objects {
			m.OnAdd(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", o), ResourceVersion: fmt.Sprint(v + 1)}}, false)
		}
	}
	<-done
	if l.Faults() == 0 {
		t.Errorf("nothing was mixed: %v", all)
	}
}
