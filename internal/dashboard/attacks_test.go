package dashboard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// watched is an API server that writes down what it is asked.
type watched struct {
	refuser
	asked []string // guarded by refuser.mu
	// says is what it says to requests that are neither lists nor watches, with which code.
	says string
	code int
}

// ServeHTTP implements http.Handler.
func (s *watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.EscapedPath())
	says, code := s.says, s.code
	s.mu.Unlock()
	if says != "" && (r.Method != http.MethodGet || strings.HasSuffix(path.Dir(r.URL.Path), "daemonsetrollouts")) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, says)
		return
	}
	s.refuser.ServeHTTP(w, r)
}

// questions are what it was asked since the last call.
func (s *watched) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.asked
	s.asked = nil
	return out
}

// attacked is a page whose API server writes down what it is asked.
func attacked(t *testing.T, change ...func(*Dashboard)) (*watched, *Dashboard) {
	t.Helper()
	s := &watched{refuser: refuser{turned: make(chan struct{})}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	d, err := Listen(Config{Cluster: &rest.Config{Host: server.URL}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(d)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(t.Context()) }()
	t.Cleanup(func() {
		server.CloseClientConnections()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-d.ready:
	case <-time.After(time.Minute):
		t.Fatal("the page is not ready")
	}
	return s, d
}

// send writes a request as it stands and reads the answer, which has to come by itself.
func send(t *testing.T, d *Dashboard, text string) (*http.Response, string) {
	t.Helper()
	text = strings.NewReplacer("{host}", d.listener.Addr().String(), "{port}", port(t, d), "{key}", d.key, "\n", "\r\n").Replace(text)
	c, err := net.Dial("tcp", d.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c, text) }() // It may be refused before it has been read.
	method, _, _ := strings.Cut(text, " ")
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%.80q is not answered: %v", text, err)
	}
	var body strings.Builder                                    // not closed: that waits for the end
	if r.Header.Get("Content-Type") != "application/x-ndjson" { // a stream does not end
		_, _ = io.Copy(&body, io.LimitReader(r.Body, 1<<20))
	}
	return r, body.String()
}

func port(t *testing.T, d *Dashboard) string {
	t.Helper()
	_, port, err := net.SplitHostPort(d.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestStrangersGetNothing sends what people without the key can send: other users of the machine, and other pages in
// the browser. None of it is answered with data, and the API server is asked nothing.
func TestStrangersGetNothing(t *testing.T) {
	s, d := attacked(t)
	s.questions()
	for name, c := range map[string]struct {
		request string
		want    []int
	}{
		"no key":                            {"GET /api/stream HTTP/1.1\nHost: {host}\n\n", []int{401}},
		"a wrong key":                       {"GET /api/stream HTTP/1.1\nHost: {host}\nAuthorization: Bearer AAAA\n\n", []int{401}},
		"an empty key":                      {"GET /api/stream HTTP/1.1\nHost: {host}\nAuthorization: Bearer \n\n", []int{401}},
		"the key with more behind it":       {"GET /api/stream HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}x\n\n", []int{401}},
		"the key by another way of signing": {"GET /api/stream HTTP/1.1\nHost: {host}\nAuthorization: Basic {key}\n\n", []int{401}},
		"two keys, one of them wrong":       {"GET /api/stream HTTP/1.1\nHost: {host}\nAuthorization: Bearer AAAA\nAuthorization: Bearer {key}\n\n", []int{401}},
		"the key in the address":            {"GET /api/stream?key={key}&authorization=Bearer%20{key} HTTP/1.1\nHost: {host}\n\n", []int{401}},
		"the key in the referrer":           {"GET /api/stream HTTP/1.1\nHost: {host}\nReferer: http://{host}/#key={key}\n\n", []int{401}},
		"the key in a cookie":               {"GET /api/stream HTTP/1.1\nHost: {host}\nCookie: key={key}\n\n", []int{401}},
		"the key as a proxy's":              {"GET /api/stream HTTP/1.1\nHost: {host}\nProxy-Authorization: Bearer {key}\n\n", []int{401}},
		"an order without a key":            {"POST /api/rollout HTTP/1.1\nHost: {host}\nContent-Length: 2\n\n{}", []int{401}},

		// The browser of somebody who has the page open, led by another page. It adds no key by itself; here it has it.
		"a name that leads here":             {"GET /api/stream HTTP/1.1\nHost: evil.example:{port}\nAuthorization: Bearer {key}\n\n", []int{421}},
		"a name that begins like ours":       {"GET /api/stream HTTP/1.1\nHost: localhost.evil.example:{port}\nAuthorization: Bearer {key}\n\n", []int{421}},
		"a name that ends like ours":         {"GET /api/stream HTTP/1.1\nHost: evil.localhost:{port}\nAuthorization: Bearer {key}\n\n", []int{421}},
		"our address in other digits":        {"GET /api/stream HTTP/1.1\nHost: 2130706433:{port}\nAuthorization: Bearer {key}\n\n", []int{421}},
		"another address of the loopback":    {"GET /api/stream HTTP/1.1\nHost: 127.0.0.2:{port}\nAuthorization: Bearer {key}\n\n", []int{421}},
		"any address":                        {"GET /api/stream HTTP/1.1\nHost: 0.0.0.0:{port}\nAuthorization: Bearer {key}\n\n", []int{421}},
		"a user before our name":             {"GET /api/stream HTTP/1.1\nHost: evil@127.0.0.1:{port}\nAuthorization: Bearer {key}\n\n", []int{400, 421}},
		"no host":                            {"GET /api/stream HTTP/1.1\nAuthorization: Bearer {key}\n\n", []int{400}},
		"no host, of the old version":        {"GET /api/stream HTTP/1.0\nAuthorization: Bearer {key}\n\n", []int{421}},
		"two hosts":                          {"GET /api/stream HTTP/1.1\nHost: {host}\nHost: evil.example\nAuthorization: Bearer {key}\n\n", []int{400}},
		"a whole address of somebody else's": {"GET http://evil.example/api/stream HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}\n\n", []int{421}},
		"the port of another program":        {"GET /api/stream HTTP/1.1\nHost: 127.0.0.1:1\nAuthorization: Bearer {key}\n\n", []int{421}},
		"the page by a name that leads here": {"GET / HTTP/1.1\nHost: evil.example:{port}\n\n", []int{421}},
		"an order of another page":           {"POST /api/rollout HTTP/1.1\nHost: {host}\nOrigin: https://evil.example\nAuthorization: Bearer {key}\nContent-Length: 2\n\n{}", []int{403}},
		"an order of a page without a name":  {"POST /api/rollout HTTP/1.1\nHost: {host}\nOrigin: null\nAuthorization: Bearer {key}\nContent-Length: 2\n\n{}", []int{403}},
		"an order of a page of this machine": {"POST /api/rollout HTTP/1.1\nHost: {host}\nOrigin: http://127.0.0.1:1\nAuthorization: Bearer {key}\nContent-Length: 2\n\n{}", []int{403}},
		"a form of another page": {"POST /api/rollout HTTP/1.1\nHost: {host}\nOrigin: https://evil.example\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\n" +
			"Content-Type: text/plain\nContent-Length: 44\n\n{\"daemonSet\":\"a/b\",\"verb\":\"abort\",\"x\":\"=\"}\n\n", []int{403}},
		"a form of another page, of an old browser": {"POST /api/rollout HTTP/1.1\nHost: {host}\nContent-Type: text/plain\nContent-Length: 2\n\n{}", []int{401}},
		"a question whether it may ask":             {"OPTIONS /api/rollout HTTP/1.1\nHost: {host}\nOrigin: https://evil.example\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: authorization\n\n", []int{403}},
		"the same of an old browser":                {"OPTIONS /api/rollout HTTP/1.1\nHost: {host}\nAccess-Control-Request-Method: POST\n\n", []int{401}},
		"a stream of another page":                  {"GET /api/stream HTTP/1.1\nHost: {host}\nOrigin: https://evil.example\nAuthorization: Bearer {key}\n\n", []int{403}},
		"a web socket of another page":              {"GET /api/stream HTTP/1.1\nHost: {host}\nOrigin: https://evil.example\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n\n", []int{403}},
		"a web socket":                              {"GET /api/stream HTTP/1.1\nHost: {host}\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n\n", []int{401}},
		"a script of another page":                  {"GET /app.js HTTP/1.1\nHost: {host}\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: script\n\n", []int{403}},
		"a frame in another page":                   {"GET / HTTP/1.1\nHost: {host}\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe\n\n", []int{403}},

		// Ways around the place where the key is asked for.
		"two slashes":                {"GET //api/stream HTTP/1.1\nHost: {host}\n\n", []int{301, 307}},
		"up and down":                {"GET /x/../api/stream HTTP/1.1\nHost: {host}\n\n", []int{301, 307}},
		"a dot":                      {"GET /./api/stream HTTP/1.1\nHost: {host}\n\n", []int{301, 307}},
		"an encoded letter":          {"GET /%61pi/stream HTTP/1.1\nHost: {host}\n\n", []int{401}},
		"an encoded slash":           {"GET /api%2Fstream HTTP/1.1\nHost: {host}\n\n", []int{401}},
		"an encoded slash before":    {"GET /%2Fapi/stream HTTP/1.1\nHost: {host}\n\n", []int{301, 307, 404}},
		"encoded dots":               {"GET /x/%2e%2e/api/stream HTTP/1.1\nHost: {host}\n\n", []int{301, 307, 404}},
		"a backslash":                {"GET /\\api/stream HTTP/1.1\nHost: {host}\n\n", []int{404}},
		"capital letters":            {"GET /API/stream HTTP/1.1\nHost: {host}\n\n", []int{404}},
		"a semicolon":                {"GET /;/api/stream HTTP/1.1\nHost: {host}\n\n", []int{404}},
		"no slash":                   {"GET /api HTTP/1.1\nHost: {host}\n\n", []int{404}},
		"a file outside":             {"GET /../../../../etc/passwd HTTP/1.1\nHost: {host}\n\n", []int{301, 307, 404}},
		"a file outside, encoded":    {"GET /..%2f..%2f..%2fetc/passwd HTTP/1.1\nHost: {host}\n\n", []int{301, 307, 400, 404}},
		"a byte that is nothing":     {"GET /index.html%00.js HTTP/1.1\nHost: {host}\n\n", []int{400, 404}},
		"a place that leads out":     {"GET //evil.example/%2e%2e HTTP/1.1\nHost: {host}\n\n", []int{301, 307, 404}},
		"a way through":              {"CONNECT evil.example:443 HTTP/1.1\nHost: evil.example:443\n\n", []int{421}},
		"a way through us":           {"CONNECT {host} HTTP/1.1\nHost: {host}\n\n", []int{400, 404, 405}},
		"another method":             {"DELETE / HTTP/1.1\nHost: {host}\n\n", []int{405}},
		"an echo":                    {"TRACE / HTTP/1.1\nHost: {host}\nX-Secret: s\n\n", []int{405}},
		"a method of one's own":      {"STEAL /api/stream HTTP/1.1\nHost: {host}\n\n", []int{401}},
		"a method by another name":   {"GET /api/rollout HTTP/1.1\nHost: {host}\nX-HTTP-Method-Override: POST\n\n", []int{401}},
		"what a proxy would ask":     {"GET /api/v1/namespaces/kube-system/secrets HTTP/1.1\nHost: {host}\n\n", []int{401}},
		"very many headers":          {"GET / HTTP/1.1\nHost: {host}\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\n", 40) + "\n", []int{431}},
		"a very long address":        {"GET /" + strings.Repeat("a", 60<<10) + " HTTP/1.1\nHost: {host}\n\n", []int{431, 414}},
		"a body that is not to come": {"POST /api/plan HTTP/1.1\nHost: {host}\nContent-Length: 999999999999\n\n", []int{401}},
		"a body without an end":      {"POST /api/plan HTTP/1.1\nHost: {host}\nTransfer-Encoding: chunked\n\n5\nhello\n", []int{401}},
		"two lengths":                {"POST /api/plan HTTP/1.1\nHost: {host}\nContent-Length: 5\nContent-Length: 6\n\nhello", []int{400}},
		"a request inside another":   {"POST /api/plan HTTP/1.1\nHost: {host}\nContent-Length: 4\nTransfer-Encoding: chunked\n\n0\n\nGET /api/stream HTTP/1.1\nHost: {host}\n\n", []int{400, 401}},
		"another protocol":           {"PRI * HTTP/2.0\n\nSM\n\n", []int{400, 421, 505}},
	} {
		t.Run(name, func(t *testing.T) {
			r, body := send(t, d, c.request)
			if !slices.Contains(c.want, r.StatusCode) {
				t.Errorf("it is answered with %d: %.200s; want %d", r.StatusCode, body, c.want)
			}
			if to := r.Header.Get("Location"); to != "" && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.HasPrefix(to, "/\\")) {
				t.Errorf("it is sent elsewhere: %s", to)
			}
			if strings.Contains(body, d.key) || strings.Contains(fmt.Sprint(r.Header), d.key) || strings.Contains(body, "X-Secret") {
				t.Errorf("the answer repeats what was sent: %v %s", r.Header, body)
			}
			for _, header := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Headers", "Set-Cookie", "Server"} {
				if v := r.Header.Get(header); v != "" {
					t.Errorf("the answer has %s: %s", header, v)
				}
			}
		})
	}
	for _, q := range s.questions() {
		if !strings.HasPrefix(q, "GET ") || strings.Contains(q, "secrets") { // its own watches go on
			t.Errorf("the API server was asked %s", q)
		}
	}
}

// own is all that the page's own requests, and its watches, ask of the API server.
var own = regexp.MustCompile(`^(GET /api/v1/(nodes|pods|events)|GET /apis/apps/v1/(daemonsets|controllerrevisions)|` +
	`GET /apis/everynode\.io/v1alpha1/(rolloutpolicies|daemonsetrollouts)|` +
	`GET /api/v1/namespaces/[^/]+/events|GET /api/v1/namespaces/[^/]+/pods/[^/]+/log|` +
	`(GET|PATCH) /apis/apps/v1/namespaces/[^/]+/daemonsets/[^/]+|GET /apis/apps/v1/namespaces/[^/]+/controllerrevisions|` +
	`(GET|PUT|PATCH) /apis/everynode\.io/v1alpha1/namespaces/[^/]+/daemonsetrollouts/[^/]+|` +
	`POST /apis/authorization\.k8s\.io/v1/selfsubjectaccessreviews)$`)

// TestThePageIsNoProxy gives parameters that are paths: what is asked of the API server is what the page needs, and
// nothing else, also for who has the key.
func TestThePageIsNoProxy(t *testing.T) {
	s, d := attacked(t)
	tricks := []string{"..", "../..", "a/../../secrets", "..%2f..%2fsecrets", "%2e%2e", "a?x=y", "a#b", "a;b", "kube-system/secrets", "a\\b", "a%00b", "a%0d%0aX-Evil:%20y", "", ".", strings.Repeat("a", 4000)}
	for _, trick := range tricks {
		for _, q := range []string{
			"GET /api/logs?namespace=" + trick + "&pod=p", "GET /api/logs?namespace=n&pod=" + trick, "GET /api/logs?namespace=n&pod=p&container=" + trick,
			"GET /api/events?namespace=" + trick, "GET /api/events?namespace=n&kind=" + trick + "&name=" + trick,
			"GET /api/node?name=" + trick, "GET /api/why?daemonset=" + trick, "GET /api/why?daemonset=n/" + trick, "GET /api/rights?daemonset=" + trick + "/x",
			"GET /api/rights?daemonset=x/" + trick, "GET /api/revisions?daemonset=" + trick + "/" + trick, "GET /api/timeline?daemonset=x/" + trick,
			"GET /api/stream?daemonset=" + trick + "/x", "GET /api/v1/namespaces/" + trick + "/secrets", "GET /apis/" + trick,
		} {
			if strings.ContainsAny(q[4:], " #\\") {
				q = "GET " + strings.NewReplacer(" ", "%20", "#", "%23", "\\", "%5c").Replace(q[4:])
			}
			r, body := send(t, d, q+" HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}\nConnection: close\n\n")
			if r.StatusCode >= 500 {
				t.Errorf("%.100s is answered with %d: %.200s", q, r.StatusCode, body)
			}
		}
		for _, verb := range []string{"pause", "undo", trick} {
			body := fmt.Sprintf(`{"daemonSet":%q,"verb":%q,"revision":%q,"step":%q,"uid":"u","generation":1}`, trick+"/x", verb, trick, trick)
			send(t, d, fmt.Sprintf("POST /api/rollout HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}\nContent-Length: %d\nConnection: close\n\n%s", len(body), body))
			body = strings.Replace(body, trick+"/x", "x/"+trick, 1)
			send(t, d, fmt.Sprintf("POST /api/rollout HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}\nContent-Length: %d\nConnection: close\n\n%s", len(body), body))
		}
	}
	asked := s.questions()
	if len(asked) < 20 {
		t.Errorf("the API server was asked %d times: nothing came through", len(asked))
	}
	for _, q := range asked {
		if !own.MatchString(q) || strings.Contains(q, "/../") || strings.Contains(q, "/./") || strings.HasSuffix(q, "/..") || strings.Contains(strings.ToLower(q), "%2f") {
			t.Errorf("the API server was asked %.200s", q)
		}
	}
}

// TestAnswersAreLockedUp looks at what each kind of answer lets a browser do with it.
func TestAnswersAreLockedUp(t *testing.T) {
	_, d := attacked(t)
	files, err := fs.Glob(page, "page/*")
	if err != nil || len(files) < 5 {
		t.Fatalf("the page's files are %v (%v)", files, err)
	}
	paths := []string{"/", "/nothing", "//double", "/api/stream", "/api/rights?daemonset=x", "/api/node?name=x"}
	for _, f := range files {
		paths = append(paths, "/"+path.Base(f))
	}
	for _, p := range paths {
		for _, key := range []string{"", "Authorization: Bearer {key}\n"} {
			r, _ := send(t, d, "GET "+p+" HTTP/1.1\nHost: {host}\n"+key+"Connection: close\n\n")
			for header, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
				"Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": policy,
			} {
				if got := r.Header.Get(header); got != want {
					t.Errorf("%s (%d) has %s: %q", p, r.StatusCode, header, got)
				}
			}
			if got := r.Header.Get("Cache-Control"); got != "no-store" && r.StatusCode < 400 {
				t.Errorf("%s (%d) may be kept: %q", p, r.StatusCode, got)
			}
			if kind := r.Header.Get("Content-Type"); strings.HasPrefix(p, "/api/") && strings.Contains(kind, "html") {
				t.Errorf("%s is shown as %s", p, kind)
			}
		}
	}
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("the policy does not say %s", part)
		}
	}
	for _, f := range files {
		text, err := fs.ReadFile(page, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "javascript:", "srcdoc", "DOMParser", "localStorage", "postMessage", "importScripts", " onclick=", " onload="} {
			if strings.Contains(string(text), way) {
				t.Errorf("%s uses %s", f, way)
			}
		}
	}
}

// TestTheClusterSaysAnything: an API server that somebody else runs answers with markup, with codes that are none, or
// with no end. What it says is text, and an error stays one.
func TestTheClusterSaysAnything(t *testing.T) {
	s, d := attacked(t)
	const evil = `<script>alert(1)</script><img src=x onerror=alert(1)>`
	for name, c := range map[string]struct {
		says string
		code int
	}{
		"markup instead of JSON":    {"<!doctype html>" + evil, 500},
		"markup in the message":     {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"` + strings.ReplaceAll(evil, `"`, `'`) + `"}`, 403},
		"a failure that is none":    {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":200,"message":"x"}`, 500},
		"a code that is none":       {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":99,"message":"x"}`, 500},
		"a code below all":          {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":-5,"message":"x"}`, 500},
		"a code beyond all":         {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":70000,"message":"x"}`, 500},
		"a code of another kind":    {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":101,"message":"x"}`, 500},
		"lines that look like ours": {`{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"message":"x\r\nSet-Cookie: a=b\r\n\r\n<html>"}`, 409},
		"an answer without an end":  {`{"kind":"Status","message":"` + strings.Repeat("a", 1<<20), 500},
	} {
		t.Run(name, func(t *testing.T) {
			s.mu.Lock()
			s.says, s.code = c.says, c.code
			s.mu.Unlock()
			for _, request := range []string{
				"GET /api/rights?daemonset=a/b HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}\nConnection: close\n\n",
				"POST /api/rollout HTTP/1.1\nHost: {host}\nAuthorization: Bearer {key}\nContent-Length: 35\nConnection: close\n\n{\"daemonSet\":\"a/b\",\"verb\":\"resume\"}",
			} {
				r, body := send(t, d, request)
				if r.StatusCode < 400 || r.StatusCode > 599 {
					t.Errorf("%.20s: an error is answered with %d: %.200s", request, r.StatusCode, body)
				}
				if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/plain") || r.Header.Get("Set-Cookie") != "" {
					t.Errorf("%.20s: it is given on as %s: %v", request, kind, r.Header)
				}
			}
		})
	}
}

// TestWhoSendsSlowly holds no connection for long: neither who does not say what he wants, nor who never sends the body
// that he has spoken of.
func TestWhoSendsSlowly(t *testing.T) {
	moment := 100 * time.Millisecond
	_, d := attacked(t, func(d *Dashboard) { d.waits = waits{header: moment, body: moment, refused: moment} })
	var group sync.WaitGroup
	for name, text := range map[string]string{
		"half a header":              "GET / HTTP/1.1\r\nHost: ",
		"nothing":                    "",
		"a refused body never comes": "POST /api/plan HTTP/1.1\r\nHost: " + d.listener.Addr().String() + "\r\nContent-Length: 100000\r\n\r\n",
		"a body never comes":         "POST /api/plan HTTP/1.1\r\nHost: " + d.listener.Addr().String() + "\r\nAuthorization: Bearer " + d.key + "\r\nContent-Length: 100000\r\n\r\n",
	} {
		group.Go(func() {
			conn, err := net.Dial("tcp", d.listener.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Error(err)
				return
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
				return
			}
			if _, err = io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection is held", name)
			}
		})
	}
	group.Wait()
}

// TestManyStreams: the pages of one user, more than a browser opens, are all told; and the key is asked for each time.
func TestManyStreams(t *testing.T) {
	_, d := attacked(t)
	for range 100 {
		if r := stream(t, d); r.StatusCode != http.StatusOK {
			t.Fatalf("a stream is answered with %d", r.StatusCode)
		} else if _, err := bufio.NewReader(r.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if r, _ := send(t, d, "GET /api/stream HTTP/1.1\nHost: {host}\n\n"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stream without the key is answered with %d", r.StatusCode)
	}
}
