package backends

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// to is the way to a server that nobody's certificate is asked of.
func to(t *testing.T, handler http.Handler) (*apiregistrationv1.APIService, *backend, *ledger) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	s := apiService()
	s.Spec.InsecureSkipTLSVerify = true
	l := &ledger{left: allDocuments}
	b, err := newBackend(s, &Config{
		Certificate: func() ([]byte, []byte) { return nil, nil },
		Resolve: func(namespace, name string, port int32) (*url.URL, error) {
			if namespace != "ns" || name != "s" || port != 443 {
				return nil, fmt.Errorf("asked for %s/%s:%d", namespace, name, port)
			}
			return url.Parse(server.URL)
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return s, b, l
}

func say(words, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, words)
	}
}

const whole = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// got is what those who merge documents are answered.
func got(d *documents, path, etag string) string {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String()))
}

func TestDocumentsOfOneServer(t *testing.T) {
	var mux atomic.Pointer[http.ServeMux]
	first := http.NewServeMux()
	first.Handle("/apis", say("all", whole))
	first.Handle("/openapi/v2", say("swagger", "application/json"))
	first.Handle("/openapi/v3", say(`{"paths":{"apis/apps/v1":{"serverRelativeURL":"/evil"},"apis/example.com/v1":{"serverRelativeURL":"/elsewhere"}}}`, "application/json"))
	mux.Store(first)
	s, b, l := to(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.Load().ServeHTTP(w, r) }))
	d := newDocuments()
	if have := got(d, "/apis", ""); !strings.HasPrefix(have, "503 ") {
		t.Errorf("before anything was read: %s", have)
	}
	if changed, err := d.read(t.Context(), b); !changed || err != nil {
		t.Fatalf("at first: %v, %v", changed, err)
	}
	for path, want := range map[string]string{
		"/apis": "200 all", "/openapi/v2": "200 swagger", "/openapi/v3": `200 {"paths":{"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/example.com/v1"}}}`,
	} {
		if have := got(d, path, ""); have != want {
			t.Errorf("%s: %s, want %s", path, have, want)
		}
		if have := got(d, path, d.get(path).etag); have != "304 " {
			t.Errorf("%s, as it is known: %s", path, have)
		}
	}
	if !d.indexed(s) {
		t.Error("its document of OpenAPI is not known")
	}
	if changed, err := d.read(t.Context(), b); changed || err != nil {
		t.Errorf("read again: changed %v, %v", changed, err)
	}

	// One that has less to say: the older discovery, and no OpenAPI.
	second := http.NewServeMux()
	second.Handle("/apis", say("{}", "application/json"))
	second.Handle("/apis/example.com/v1", say("one", "application/json"))
	mux.Store(second)
	if changed, err := d.read(t.Context(), b); !changed || err != nil {
		t.Fatalf("the second: %v, %v", changed, err)
	}
	for path, want := range map[string]string{"/apis": "404 Not Found", "/apis/example.com/v1": "200 one", "/openapi/v2": "404 Not Found", "/openapi/v3": "404 Not Found"} {
		if have := got(d, path, ""); have != want {
			t.Errorf("the second, %s: %s, want %s", path, have, want)
		}
	}

	// One that fails: what kinds there are is not known any more.
	mux.Store(http.NewServeMux())
	changed, err := d.read(t.Context(), b)
	if !changed || err == nil || !strings.Contains(err.Error(), "GET /apis/example.com/v1: Not Found") {
		t.Errorf("without discovery: %v, %v", changed, err)
	}
	if have := got(d, "/apis/example.com/v1", "") + got(d, "/apis", ""); strings.Count(have, "503") != 2 {
		t.Errorf("without discovery there is %s", have)
	}
	d.close()
	if l.left != allDocuments {
		t.Errorf("%d bytes are lost to all", allDocuments-l.left)
	}
}

// TestUnchangedDocumentsAreNotSent: a server that knows the question says that nothing is new.
func TestUnchangedDocumentsAreNotSent(t *testing.T) {
	var sent atomic.Int32
	_, b, _ := to(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		sent.Add(1)
		say(`{"paths":{}}`, whole)(w, r)
	}))
	d := newDocuments()
	for i := range 3 {
		if changed, err := d.read(t.Context(), b); changed != (i == 0) || err != nil {
			t.Errorf("time %d: %v, %v", i, changed, err)
		}
	}
	if sent.Load() != 3 {
		t.Errorf("%d documents were sent, not 3", sent.Load())
	}
}

func TestHostileAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"elsewhere":     {http.RedirectHandler("https://127.0.0.1:1/", http.StatusFound).ServeHTTP, "Found"},
		"as known":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, "Not Modified"},
		"a long header": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, "server response headers exceeded"},
		"an end that lacks": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}, "EOF"},
		"a bomb of gzip":     {bomb, "more than"},
		"no document at all": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "Forbidden"},
	} {
		_, b, l := to(t, c.answer)
		d := newDocuments()
		if _, err := d.readOpenAPI(t.Context(), b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if l.left != allDocuments {
			t.Errorf("%s: %d bytes are lost to all", name, allDocuments-l.left)
		}
	}
}

// TestSlowServer: whoever asks goes away when its time has come.
func TestSlowServer(t *testing.T) {
	_, b, l := to(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	d := newDocuments()
	if _, err := d.readOpenAPI(ctx, b); err == nil || !strings.Contains(err.Error(), "it has not come to its end") {
		t.Errorf("it ends with %v", err)
	}
	if err := b.alive(ctx); err == nil {
		t.Error("after its time it answers")
	}
	if l.left != allDocuments {
		t.Errorf("%d bytes are lost to all", allDocuments-l.left)
	}
}

// bomb is a few bytes that become very many.
func bomb(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Encoding", "gzip")
	packed := gzip.NewWriter(w)
	part := make([]byte, 1<<20)
	for range 64 {
		if _, err := packed.Write(part); err != nil {
			return
		}
	}
	_ = packed.Close()
}

// slowly is a client that does not read before it is told to.
type slowly struct {
	http.ResponseWriter
	reads   <-chan struct{}
	waiting *atomic.Int32
}

func (s slowly) Write(p []byte) (int, error) {
	s.waiting.Add(1)
	<-s.reads
	return s.ResponseWriter.Write(p)
}

// Whoever may read documents may ask for many at a time. What is kept of other servers has its room all the same.
func TestClientsThatReadSlowly(t *testing.T) {
	const clients, size = 20, 7 << 20
	mux := http.NewServeMux()
	mux.Handle("/apis", say("all", whole))
	mux.Handle("/openapi/v3/apis/example.com/v1", say(`"`+strings.Repeat("x", size)+`"`, "application/json"))
	s, b, _ := to(t, mux)
	k := &Keeper{ledger: ledger{left: size}, handed: handedLedger(), config: Config{
		Certificate: func() ([]byte, []byte) { return nil, nil }, Resolve: b.resolve, Dial: (&net.Dialer{}).DialContext,
	}}
	m := newMinder(k, s, nil)
	reads, waiting, refused := make(chan struct{}), &atomic.Int32{}, &atomic.Int32{}
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			r := httptest.NewRequest(http.MethodGet, "/openapi/v3/apis/example.com/v1", http.NoBody)
			w := httptest.NewRecorder()
			m.serveSpec(slowly{w, reads, waiting}, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "u"})))
			if w.Code == http.StatusServiceUnavailable && strings.Contains(w.Body.String(), "together take more than 134217728 bytes") {
				refused.Add(1)
			} else if w.Code != http.StatusOK || w.Body.Len() != size+2 {
				t.Errorf("a client is answered %d, with %d bytes: %.200s", w.Code, w.Body.Len(), w.Body)
			}
		})
	}
	for deadline := time.Now().Add(time.Minute); waiting.Load() < clients; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d clients wait", waiting.Load())
		}
	}
	if k.ledger.left != size {
		t.Errorf("clients have taken %d bytes of those for what is kept", size-k.ledger.left)
	}
	kept, err := newBackend(s, &k.config, &k.ledger)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.close()
	if _, err := newDocuments().readDiscovery(t.Context(), kept); err != nil {
		t.Errorf("meanwhile the server cannot be asked which kinds there are: %v", err)
	}
	close(reads)
	all.Wait()
	if refused.Load() == 0 || refused.Load() == clients {
		t.Errorf("%d of %d clients were refused", refused.Load(), clients)
	}
	if k.handed.left != allHanded {
		t.Errorf("%d bytes are lost to all clients", allHanded-k.handed.left)
	}
}
