package networkapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

const path = "/apis/network.everynode.io/v1/nodes"

// line is a line of a watch.
type line struct {
	Type   string
	Object struct {
		metav1.ObjectMeta `json:"metadata"`
		Code              int
	}
}

func aNode(name, pods string, version int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(version)}, Spec: corev1.NodeSpec{PodCIDR: pods}}
}

// serve answers over HTTP from a book.
func serve(t *testing.T, b *book) string {
	t.Helper()
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			t.Error(err)
		}
		(&API{b}).ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
	}))
	t.Cleanup(server.Close)
	return server.URL + path
}

// watchFrom opens a watch and returns what reads its next line, false for its end.
func watchFrom(t *testing.T, url string, version int) func() (line, bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s?watch=true&resourceVersion=%d", url, version), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	return func() (l line, ok bool) {
		if !lines.Scan() {
			return l, false
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		return l, true
	}
}

func TestNothingIsToldBeforeAllIsRead(t *testing.T) {
	answer, err := http.Get(serve(t, newBook()))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("%s: %v", answer.Status, answer.Header)
	}
}

// A watch is told what it missed, then what comes; and that it must list again once what
// it missed is forgotten, also while it is open.
func TestWatchesFollowAndAreCutOff(t *testing.T) {
	b := newBook()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.Replace([]any{aNode("a", "1", 3)}, "5"))
	url := serve(t, b)
	if l, ok := watchFrom(t, url, 4)(); !ok || l.Type != "ERROR" || l.Object.Code != http.StatusGone {
		t.Errorf("from before anything is known: %+v", l)
	}
	must(b.Add(aNode("b", "2", 7)))
	open := watchFrom(t, url, 5)
	if l, ok := open(); !ok || l.Type != "ADDED" || l.Object.Name != "b" || l.Object.ResourceVersion != "7" {
		t.Errorf("what was missed: %+v", l)
	}
	must(b.Update(aNode("b", "2", 8))) // nothing of it is news
	must(b.Delete(aNode("b", "2", 9)))
	if l, ok := open(); !ok || l.Type != "DELETED" || l.Object.ResourceVersion != "9" {
		t.Errorf("what came: %+v", l)
	}
	b.UpdateResourceVersion("20")
	must(b.Replace([]any{aNode("c", "1", 22)}, "30"))
	if l, ok := open(); !ok || l.Type != "ERROR" || l.Object.Code != http.StatusGone {
		t.Errorf("after the book was begun again: %+v", l)
	}
	if _, ok := open(); ok {
		t.Error("the watch goes on")
	}
	for _, wrong := range []error{b.Add("x"), b.Replace([]any{"x"}, "31"), b.Replace(nil, "x")} {
		if wrong == nil {
			t.Error("nonsense was taken")
		}
	}
}

// BenchmarkFanOut is what a change costs that many watches are told, and what a new
// watch of a large cluster costs.
func BenchmarkFanOut(b *testing.B) {
	nodes := make([]any, 50_000)
	for i := range nodes {
		n := aNode(fmt.Sprintf("node-%05d", i), fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), i+1)
		n.UID, n.CreationTimestamp = "8f2b0c3e-6f0a-4d1c-9a55-0123456789ab", metav1.NewTime(time.Unix(1_700_000_000, 0))
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.100.100"}}
		nodes[i] = n
	}
	book := newBook()
	if err := book.Replace(nodes, "50000"); err != nil {
		b.Fatal(err)
	}
	b.Run("all 50,000 nodes for one watch", func(b *testing.B) {
		size := 0
		for b.Loop() {
			all, _ := book.all()
			size = 0
			for _, n := range all {
				size += len(n.Added)
			}
		}
		b.ReportMetric(float64(size), "bytes/watch")
	})
	version := 50_000
	b.Run("a change noted", func(b *testing.B) {
		for b.Loop() {
			version++
			if err := book.Update(aNode("node-00007", fmt.Sprint(version), version)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("a change that is none", func(b *testing.B) {
		same := aNode("node-00007", "same", version+1)
		for b.Loop() {
			if err := book.Update(same); err != nil {
				b.Fatal(err)
			}
		}
	})
}
