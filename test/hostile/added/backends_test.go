package added

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// memory is how much more the heap holds at its worst than at the start.
type memory struct {
	start, peak uint64
	stop, done  chan struct{}
}

func watchMemory() *memory {
	runtime.GC()
	m := &memory{stop: make(chan struct{}), done: make(chan struct{})}
	m.start = heap()
	go func() {
		defer close(m.done)
		for {
			select {
			case <-m.stop:
				return
			case <-time.After(20 * time.Millisecond):
				m.peak = max(m.peak, heap())
			}
		}
	}()
	return m
}

func heap() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// end fails the test if the heap grew by more than that many MB.
func (m *memory) end(t *testing.T, most uint64) {
	t.Helper()
	close(m.stop)
	<-m.done
	grew := (max(m.peak, m.start) - m.start) >> 20
	t.Logf("the heap grew by %d MB", grew)
	if grew > most {
		t.Errorf("the heap grew by %d MB, more than %d", grew, most)
	}
}

// pour writes without an end, and counts.
func pour(w http.ResponseWriter, kind, begin, more string, sent *atomic.Int64) {
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, begin)
	for part := strings.Repeat(more, 1<<20/len(more)); ; {
		n, err := io.WriteString(w, part)
		sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

const wholeDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// entries is what aggregated discovery says of a group.
func (c *cluster) entry(ctx context.Context, group string) (*apidiscoveryv2.APIVersionDiscovery, error) {
	list := apidiscoveryv2.APIGroupDiscoveryList{}
	if err := c.Client.Discovery().RESTClient().Get().AbsPath("/apis").SetHeader("Accept", wholeDiscovery).Do(ctx).Into(&list); err != nil {
		return nil, err
	}
	for _, g := range list.Items {
		if g.Name == group && len(g.Versions) > 0 {
			return &g.Versions[0], nil
		}
	}
	return nil, fmt.Errorf("%s is none of %d groups", group, len(list.Items))
}

// discovered waits until the kinds of a group are known.
func (c *cluster) discovered(group string) {
	c.t.Helper()
	c.Eventually("the kinds of "+group+" are known", func(ctx context.Context) error {
		e, err := c.entry(ctx, group)
		if err == nil && (e.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent || len(e.Resources) == 0) {
			err = fmt.Errorf("it is %s, with %d kinds", e.Freshness, len(e.Resources))
		}
		return err
	})
}

// stale waits until it is known that nobody knows the kinds of a group.
func (c *cluster) stale(group string) {
	c.t.Helper()
	c.Eventually("the kinds of "+group+" are not known", func(ctx context.Context) error {
		e, err := c.entry(ctx, group)
		if err == nil && (e.Freshness != apidiscoveryv2.DiscoveryFreshnessStale || len(e.Resources) > 0) {
			err = fmt.Errorf("it is %s, with %d kinds", e.Freshness, len(e.Resources))
		}
		return err
	})
}

// said waits until an APIService says that of its documents.
func (c *cluster) said(name, reason, words string) {
	c.t.Helper()
	c.Eventually(name+" says "+words, func(ctx context.Context) error {
		s, err := c.services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, x := range s.Status.Conditions {
			if x.Type == "everynode.io/DocumentsRead" && x.Status == apiregistrationv1.ConditionFalse && x.Reason == reason && strings.Contains(x.Message, words) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", s.Status.Conditions)
	})
}

// unharmed looks whether the server says of itself, and of an honest server, what it should,
// and how long it takes for that.
func (c *cluster) unharmed(t *testing.T) {
	t.Helper()
	for path, words := range map[string]string{
		"/openapi/v2": `"io.k8s.api.apps.v1.DaemonSet"`, "/openapi/v3": `"apis/apps/v1"`, "/openapi/v3/apis/apps/v1": `"io.k8s.api.apps.v1.DaemonSet"`,
		"/apis": `"honest.example.com"`, "/apis/honest.example.com/v1": `"Honest"`, "/openapi/v3/apis/honest.example.com/v1": "com.example.Honest", "/version": "gitVersion",
	} {
		begin := time.Now()
		body, err := c.Client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.Context())
		if err != nil || !strings.Contains(string(body), words) {
			t.Errorf("%s: %.200s, %v", path, body, err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("%s took %v", path, took)
		}
	}
	c.discovered("honest.example.com")
}

const honestSpec = `{"openapi":"3.0.0","info":{"title":"honest","version":"v1"},"paths":{},"components":{"schemas":{"com.example.Honest":{"type":"object"}}}}`

// honest is a server as it should be.
func (c *cluster) honest() {
	const group = "honest.example.com"
	mux := http.NewServeMux()
	mux.Handle("/apis/"+group+"/v1", resources(group+"/v1", resource("honests", "Honest")))
	mux.HandleFunc("/openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"paths": map[string]any{"apis/" + group + "/v1": map[string]any{"serverRelativeURL": "/openapi/v3/apis/" + group + "/v1?hash=1"}}})
	})
	mux.HandleFunc("/openapi/v3/apis/"+group+"/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, honestSpec)
	})
	c.pod("honest", mux)
	c.add(c.t, c.apiService(group, "v1", "honest")) // also for the attacks that follow
	c.available("v1." + group)
	c.discovered(group)
}

// withoutEnd are servers whose documents never end, each another one.
func (c *cluster) withoutEnd(t *testing.T) {
	c.honest()
	c.unharmed(t)
	grows := watchMemory()
	var sent atomic.Int64
	for name, bad := range map[string]struct{ path, kind, begin, more, words string }{
		"discovery": {"/apis", wholeDiscovery, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[`, `{"metadata":{"name":"x"}},`, "GET /apis: the document is too large"},
		"legacy":    {"/apis/legacy.example.com/v1", "application/json", `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"legacy.example.com/v1","resources":[{"name":"`, "x", "GET /apis/legacy.example.com/v1: the document is too large"},
		"swagger":   {"/openapi/v2", "application/json", `{"swagger":"2.0","definitions":{`, `"a":{},`, "GET /openapi/v2: the document is too large"},
		"index":     {"/openapi/v3", "application/json", `{"paths":{"`, "x", "GET /openapi/v3: the document is too large"},
	} {
		group := name + ".example.com"
		mux := http.NewServeMux()
		mux.Handle("/apis/"+group+"/v1", resources(group+"/v1", resource("things", "Thing")))
		c.pod(name, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == bad.path {
				pour(w, bad.kind, bad.begin, bad.more, &sent)
				return
			}
			mux.ServeHTTP(w, r)
		}))
		c.add(t, c.apiService(group, "v1", name))
		c.said("v1."+group, "TooLarge", bad.words)
		c.available("v1." + group)
		if strings.HasPrefix(bad.path, "/apis") {
			c.stale(group)
		} else {
			c.discovered(group)
		}
	}
	c.unharmed(t)
	grows.end(t, 300)
	t.Logf("%d MB were sent", sent.Load()>>20)
}

// slowly is a server that sends a byte each second, and one of which the header has no end.
func (c *cluster) slowly(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	defer close(ended)
	const group = "slowly.example.com"
	c.pod("slowly", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/apis/"+group+"/v1" {
			resources(group+"/v1", resource("things", "Thing"))(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for {
			_, err := io.WriteString(w, " ")
			if err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
			}
		}
	}))
	c.add(t, c.apiService(group, "v1", "slowly"))
	c.available("v1." + group)
	c.unharmed(t)
	c.said("v1."+group, "NotRead", "it has not come to its end within")
	c.unharmed(t)
}

// manyThatHang are a hundred APIServices whose server takes each question and says nothing.
func (c *cluster) manyThatHang(t *testing.T) {
	t.Parallel()
	const many = 100
	ended := make(chan struct{})
	hang := sync.OnceFunc(func() { close(ended) })
	defer hang()
	c.pod("silent", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	start, grows := time.Now(), watchMemory()
	for i := range many {
		c.add(t, c.apiService(fmt.Sprintf("hangs%d.example.com", i), "v1", "silent"))
	}
	c.Eventually("they are found out", func(ctx context.Context) error {
		all, err := c.services.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := 0
		for _, s := range all.Items {
			for _, x := range s.Status.Conditions {
				if strings.HasPrefix(s.Name, "v1.hangs") && x.Type == apiregistrationv1.Available && x.Status == apiregistrationv1.ConditionFalse {
					found++
				}
			}
		}
		if found < many {
			err = fmt.Errorf("%d of %d are", found, many)
		}
		return err
	})
	c.unharmed(t)

	t.Logf("all are found out after %v", time.Since(start))

	// Another server comes and goes among them, and a definition too.
	begin := time.Now()
	const group = "newcomer.example.com"
	mux := http.NewServeMux()
	mux.Handle("/apis/"+group+"/v1", resources(group+"/v1", resource("things", "Thing")))
	c.pod("newcomer", mux)
	c.add(t, c.apiService(group, "v1", "newcomer"))
	c.available("v1." + group)
	c.discovered(group)
	definition := c.shifting("amonghanging.example.com")
	if _, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.discovered("amonghanging.example.com")
	t.Logf("a server and a definition more took %v", time.Since(begin))
	if took := time.Since(begin); took > 30*time.Second {
		t.Error("that is too long")
	}
	if err := c.services.Delete(t.Context(), "v1."+group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("it is gone", func(ctx context.Context) error {
		if e, err := c.entry(ctx, group); err == nil {
			return fmt.Errorf("there is %v", e)
		}
		return nil
	})
	c.unharmed(t)
	grows.end(t, 600) // of both ends of a few hundred connections, and of the agent between
}

// spoilers are servers whose documents would change, or break, what is said of others.
func (c *cluster) spoilers(t *testing.T) {
	const group = "spoils.example.com"
	var swagger atomic.Value
	swagger.Store(`null`)
	mux := http.NewServeMux()
	mux.Handle("/apis/"+group+"/v1", resources(group+"/v1", resource("things", "Thing")))
	mux.HandleFunc("/apis", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wholeDiscovery)
		_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
			{"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current"}]},
			{"metadata":{"name":"`+group+`"},"versions":[{"version":"v1","resources":[{"resource":"things","scope":"Namespaced","singularResource":"thing","verbs":["get"]}]}]}]}`)
	})
	mux.HandleFunc("/openapi/v2", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, swagger.Load().(string))
	})
	mux.HandleFunc("/openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"paths": map[string]any{
			"apis/apps/v1": map[string]any{"serverRelativeURL": "/openapi/v3/apis/" + group + "/v1"}, "api/v1": map[string]any{"serverRelativeURL": "/evil"},
			"apis/" + group + "/v1": map[string]any{"serverRelativeURL": "/api/v1/namespaces/kube-system/secrets"}}})
	})
	mux.HandleFunc("/openapi/v3/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"from":"the spoiler"}`)
	})
	c.pod("spoils", mux)
	path := `"/apis/` + group + `/v1/things":{"get":{"responses":{"200":{"description":"x","schema":{"$ref":"#/definitions/io.k8s.api.apps.v1.DaemonSet"}}}}}`
	for i, words := range []string{
		`null`, `{}`, `[]`, `{"paths":null,"definitions":null}`, `{"swagger":"2.0","paths":{` + path + `},"definitions":{}}`,
		`{"swagger":"2.0","paths":{` + path + `},"definitions":{"io.k8s.api.apps.v1.DaemonSet":{"type":"string","$ref":"#/definitions/io.k8s.api.apps.v1.DaemonSet"}}}`,
		`{"swagger":"2.0","paths":{` + path + `,"/apis/apps/v1/namespaces/{namespace}/daemonsets":{"get":{}}},"definitions":{"io.k8s.api.apps.v1.DaemonSet":{"type":"string"}},"parameters":{"body-2Y1dVQaQ":null}}`,
		`{"swagger":"2.0","paths":{` + strings.Replace(path, `"schema"`, `"parameters":[{"$ref":"#/parameters/none"}],"schema"`, 1) + `}}`,
		`{"swagger":"2.0","paths":` + strings.Repeat(`{"a":`, 9000) + `1` + strings.Repeat(`}`, 9000) + `}`,
		strings.Repeat(`[`, 100_000),
	} {
		swagger.Store(words)
		s := c.apiService(group, "v1", "spoils")
		if _, err := c.services.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.available(s.Name)
		c.discovered(group)
		// Its documents are read when its index is known.
		c.Eventually("its documents are read", func(ctx context.Context) error {
			body, err := c.Client.Discovery().RESTClient().Get().AbsPath("/openapi/v3").DoRaw(ctx)
			if err == nil && !strings.Contains(string(body), group) {
				err = errors.New("it is not in the index")
			}
			if strings.Contains(string(body), "evil") || strings.Contains(string(body), "secrets") {
				t.Fatalf("document %d: the index leads elsewhere: %.500s", i, body)
			}
			return err
		})
		body, err := c.Client.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/apps/v1").DoRaw(t.Context())
		if err != nil || strings.Contains(string(body), "spoiler") {
			t.Errorf("document %d: of apps it is said: %.100s, %v", i, body, err)
		}
		c.unharmed(t)
		if err := c.services.Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Eventually("it is gone", func(ctx context.Context) error {
			if _, err := c.services.Get(ctx, s.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return errors.New("it is there")
			}
			body, err := c.Client.Discovery().RESTClient().Get().AbsPath("/openapi/v3").DoRaw(ctx)
			if err == nil && strings.Contains(string(body), group) {
				err = errors.New("it is in the index")
			}
			return err
		})
	}
}
