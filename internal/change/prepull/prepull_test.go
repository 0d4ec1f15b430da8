package prepull

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/node/imagepull"
)

// fleet is an API server with agents behind it; each does what its name says.
type fleet struct {
	mu    sync.Mutex
	asked []string
	// now is how many pulls there are, most how many there were at one time.
	now, most int
	// written counts the bytes of who never ends.
	written int
	// open lets those end that wait.
	open chan struct{}
}

func (f *fleet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	node := r.PathValue("node")
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.String())
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	name, _, _ := strings.Cut(node, "-")
	switch name {
	case "good":
		fmt.Fprintln(w, `{"state":"Pulling"}`)
		fmt.Fprintln(w, `{"state":"Pulled","bytes":42}`)
	case "there":
		fmt.Fprintln(w, `{"state":"Present","bytes":7}`)
	case "bad":
		fmt.Fprintln(w, `{"state":"Failed","message":"unauthorized"}`)
	case "cut":
		fmt.Fprintln(w, `{"state":"Pulling"}`)
	case "odd":
		fmt.Fprintln(w, `{"state":"Fine"}`)
	case "garbage":
		fmt.Fprintln(w, `<html>`)
	case "flood":
		fmt.Fprint(w, strings.Repeat("x", maxLine+1))
	case "old":
		http.NotFound(w, r)
	case "picky":
		http.Error(w, "couldn't parse it", http.StatusBadRequest)
	case "forbidden":
		http.Error(w, "no", http.StatusForbidden)
	case "keeps":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, map[string]string{"GET": `{"images":["a:1","b:1"]}`, "DELETE": `{"removed":true}`}[r.Method])
	case "free":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"removed":false}`)
	case "unready": // the API server answers
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the agent of node unready cannot be called","reason":"ServiceUnavailable","code":503}`)
	case "endless":
		if node == "endless-error" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, strings.Repeat(" ", 32<<10))
			f.mu.Lock()
			f.written += n
			f.mu.Unlock()
			if err != nil || f.said() > 64*maxAnswer {
				return
			}
		}
	case "slow":
		for r.Context().Err() == nil {
			fmt.Fprintln(w, `{"state":"Pulling"}`)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	case "waits":
		<-f.open
		fmt.Fprintln(w, `{"state":"Present"}`)
	case "silent":
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

func (f *fleet) said() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.written
}

func newFleet(t *testing.T) (*fleet, *Client) {
	t.Helper()
	f := &fleet{open: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("/api/v1/nodes/{node}/proxy/images/", f)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return f, client
}

func TestPull(t *testing.T) {
	f, c := newFleet(t)
	c.silence = 300 * time.Millisecond
	want := map[string]string{
		"good": "Pulled 42", "there": "Present 7", "bad": "unauthorized", "cut": "the node did not say how the pull ended", "odd": `the pull is "Fine"`,
		"garbage": "what is no progress of a pull", "flood": "token too long", "old": "its agent is older than this program",
		"forbidden": "that needs the right to create nodes/proxy", "picky": "couldn't parse it", "silent": "the node has said nothing for 300ms",
	}
	var nodes, begun []string
	for node := range want {
		nodes = append(nodes, node)
	}
	got := map[string]string{}
	c.Pull(t.Context(), nodes, Order{Image: "r.io/a b:1", Pin: true, Parallel: 3}, func(node string) { begun = append(begun, node) }, func(r Result) {
		got[r.Node] = fmt.Sprintf("%s %d", r.State, r.Bytes)
		if r.Err != nil {
			got[r.Node] = r.Err.Error()
		}
	})
	for node, says := range want {
		if !strings.Contains(got[node], says) {
			t.Errorf("%s: %s, want %s", node, got[node], says)
		}
	}
	slices.Sort(begun)
	if len(begun) != len(nodes) {
		t.Errorf("begun were %q", begun)
	}
	if first := "POST /api/v1/nodes/good/proxy/images/pull?always=false&image=r.io%2Fa+b%3A1&pin=true"; !slices.Contains(f.asked, first) {
		t.Errorf("asked was %q", f.asked)
	}
}

func TestSoManyAtOneTime(t *testing.T) {
	f, c := newFleet(t)
	nodes := []string{"waits-1", "waits-2", "waits-3", "waits-4", "waits-5", "waits-6", "waits-7", "waits-8"}
	go func() {
		defer close(f.open)
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			f.mu.Lock()
			now := f.now
			f.mu.Unlock()
			if now >= 3 {
				return
			}
		}
		t.Error("three do not pull at one time")
	}()
	ended := 0
	c.Pull(t.Context(), nodes, Order{Image: "a", Parallel: 3}, func(string) {}, func(r Result) {
		ended++
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
	if ended != len(nodes) || f.most > 3 {
		t.Errorf("%d ended, %d pulled at one time", ended, f.most)
	}
}

func TestPins(t *testing.T) {
	_, c := newFleet(t)
	var said []string
	for _, p := range c.Pins(t.Context(), []string{"unready", "keeps-2", "keeps-1", "old"}, 2) {
		said = append(said, fmt.Sprint(p.Node, " ", p.Images, " ", p.Err))
	}
	for i, want := range []string{"keeps-1 [a:1 b:1] <nil>", "keeps-2 [a:1 b:1] <nil>", "old [] ", "unready [] the agent of node unready cannot be called"} {
		if !strings.HasPrefix(said[i], want) {
			t.Errorf("%s, want %s", said[i], want)
		}
	}
	let := map[string]string{}
	c.Unpin(t.Context(), []string{"keeps-1", "free", "unready"}, "a:1", 3, func(r Result) { let[r.Node] = fmt.Sprint(r.State, r.Err) })
	if let["keeps-1"] != "Present<nil>" || let["free"] != "<nil>" || !strings.Contains(let["unready"], "cannot be called") {
		t.Errorf("let go: %v", let)
	}
}

// A node that says that it pulls keeps its place only so long.
func TestPullThatNeverEnds(t *testing.T) {
	_, c := newFleet(t)
	said := map[string]string{}
	c.Pull(t.Context(), []string{"slow-1", "slow-2", "there"}, Order{Image: "a:1", Parallel: 1, Timeout: 200 * time.Millisecond}, func(string) {}, func(r Result) {
		said[r.Node] = fmt.Sprint(r.State, " ", r.Err)
	})
	for node, want := range map[string]string{"slow-1": "Failed the node still pulled after 200ms", "slow-2": "Failed the node still pulled after 200ms", "there": "Present <nil>"} {
		if said[node] != want {
			t.Errorf("%s: %s, want %s", node, said[node], want)
		}
	}
}

// A node in wrong hands may say more than there is memory for.
func TestEndlessAnswers(t *testing.T) {
	f, c := newFleet(t)
	nodes := []string{"endless", "endless-error"}
	for _, p := range c.Pins(t.Context(), nodes, 1) {
		if p.Err == nil || !strings.Contains(p.Err.Error(), "more than 1048576 bytes") {
			t.Errorf("%s: %v", p.Node, p.Err)
		}
	}
	c.Unpin(t.Context(), nodes, "a:1", 1, func(r Result) {
		if r.Err == nil || !strings.Contains(r.Err.Error(), "more than 1048576 bytes") {
			t.Errorf("%s: %v", r.Node, r.Err)
		}
	})
	c.Pull(t.Context(), nodes[1:], Order{Image: "a:1"}, func(string) {}, func(r Result) {
		if r.Err == nil || !strings.Contains(r.Err.Error(), "more than 1048576 bytes") {
			t.Errorf("%s: %v", r.Node, r.Err)
		}
	})
	// The rest is what connections hold.
	if said := f.said(); said > 60*maxAnswer {
		t.Errorf("%d bytes were read", said)
	}
}

// Who is interrupted learns what became of each node.
func TestInterrupted(t *testing.T) {
	_, c := newFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	results := 0
	c.Pull(ctx, []string{"silent-1", "silent-2", "silent-3", "silent-4"}, Order{Image: "a", Parallel: 2}, func(string) { cancel() }, func(r Result) {
		results++
		if !errors.Is(r.Err, context.Canceled) || r.State != imagepull.Failed {
			t.Errorf("%s: %v", r.Node, r.Err)
		}
	})
	if results != 4 {
		t.Errorf("%d results", results)
	}
}
