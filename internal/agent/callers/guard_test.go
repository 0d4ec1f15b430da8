package callers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/pki"
)

func TestNeed(t *testing.T) {
	for _, c := range []struct{ method, path, verb, want string }{
		{"GET", "/metrics", "get", "metrics"}, {"GET", "/metrics/cadvisor", "get", "metrics"}, {"GET", "/metricsx", "get", "proxy"},
		{"GET", "/stats/summary", "get", "stats"}, {"GET", "/logs/syslog", "get", "log"},
		{"GET", "/pods", "get", "pods proxy"}, {"GET", "/healthz", "get", "healthz proxy"}, {"GET", "/configz", "get", "configz proxy"},
		{"GET", "/containerLogs/ns/p/c", "get", "proxy"}, {"POST", "/exec/ns/p/c", "create", "proxy"}, {"GET", "/exec/ns/p/c", "create", "proxy"},
		{"HEAD", "/exec/ns/p/c", "create", "proxy"}, {"GET", "/attach/ns/p/c", "create", "proxy"}, {"GET", "/portForward/ns/p", "create", "proxy"},
		{"GET", "/executed", "get", "proxy"},
		{"POST", "/images/pull", "create", "images proxy"}, {"DELETE", "/images/pins", "delete", "images proxy"}, {"POST", "/imagesx", "create", "proxy"},
		{"PUT", "/run", "update", "proxy"}, {"PATCH", "/run", "patch", "proxy"}, {"DELETE", "/run", "delete", "proxy"}, {"HEAD", "/pods", "get", "pods proxy"},
	} {
		verb, subresources := need(c.method, c.path)
		if got := strings.Join(subresources, " "); verb != c.verb || got != c.want {
			t.Errorf("%s %s needs %s on %s, want %s on %s", c.method, c.path, verb, got, c.verb, c.want)
		}
	}
}

// cluster is an API server that knows the tokens of prometheus, who may scrape, and of nobody, who may nothing.
type cluster struct {
	t               *testing.T
	client          *fake.Clientset
	bundle          *pki.Bundle
	server          *httptest.Server
	reviews, rights atomic.Int32
	away            atomic.Bool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, client: fake.NewClientset()}
	var err error
	c.bundle, err = pki.LoadOrCreate(filepath.Join(t.TempDir(), "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.reviews.Add(1)
		if c.away.Load() {
			return true, nil, errors.New("connection refused")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		name, known := strings.CutPrefix(review.Spec.Token, "token-of-")
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: known, User: authenticationv1.UserInfo{Username: name, Groups: []string{"team"}}}
		return true, review, nil
	})
	c.client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.rights.Add(1)
		if c.away.Load() {
			return true, nil, errors.New("connection refused")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r := review.Spec.ResourceAttributes
		if r.Resource != "nodes" || r.Name != "n1" || r.Namespace != "" || !slices.Contains(review.Spec.Groups, "system:authenticated") {
			t.Errorf("asked for %+v", review.Spec)
		}
		switch review.Spec.User {
		case "prometheus":
			review.Status.Allowed = r.Verb == "get" && r.Subresource == "metrics"
		case "reader":
			review.Status.Allowed = r.Verb == "get" && r.Subresource == "proxy"
		case "operator", "admin":
			review.Status.Allowed = r.Subresource == "proxy"
		}
		return true, review, nil
	})
	guard := New(Config{NodeName: "n1", Client: c.client, ClientCAs: c.bundle.CAPool, Now: time.Now})
	c.server = httptest.NewUnstartedServer(guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })))
	c.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, ClientCAs: c.bundle.CAPool(), MinVersion: tls.VersionTLS12}
	c.server.StartTLS()
	t.Cleanup(c.server.Close)
	return c
}

// ask answers with what a caller gets.
func (c *cluster) ask(token string, pair *tls.Certificate, method, path string) (int, string) {
	c.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(c.server.Certificate())
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if pair != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(body))
}

func (c *cluster) pair(signer *pki.Signer, user string) *tls.Certificate {
	c.t.Helper()
	certPEM, keyPEM, err := signer.NewClient(user, nil, time.Hour)
	if err != nil {
		c.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		c.t.Fatal(err)
	}
	return &pair
}

func TestWhoMayCall(t *testing.T) {
	c := newCluster(t)
	other, err := pki.LoadOrCreate(filepath.Join(t.TempDir(), "other"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ours := c.bundle.Signer()
	for _, who := range []struct {
		name, token  string
		pair         *tls.Certificate
		method, path string
		code         int
		body         string
	}{
		{"nobody", "", nil, "GET", "/metrics", 401, "Unauthorized"},
		{"a token that is none", "made-up", nil, "GET", "/metrics", 401, "Unauthorized"},
		{"who may scrape", "token-of-prometheus", nil, "GET", "/metrics/cadvisor", 200, "ok"},
		{"who may scrape only", "token-of-prometheus", nil, "GET", "/pods", 403, "Forbidden (user=prometheus, verb=get, resource=nodes, subresource(s)=[pods proxy])"},
		{"who may nothing", "token-of-nobody", nil, "POST", "/exec/ns/p/c", 403, "Forbidden (user=nobody, verb=create, resource=nodes, subresource(s)=[proxy])"},
		{"who may read everything", "token-of-reader", nil, "GET", "/containerLogs/ns/p/c", 200, "ok"},
		{"who may read everything, with a WebSocket", "token-of-reader", nil, "GET", "/exec/ns/p/c", 403,
			"Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])"},
		{"who may everything", "token-of-operator", nil, "GET", "/pods", 200, "ok"},
		{"the API server", "", c.pair(ours, pki.KubeletClientUser), "POST", "/exec/ns/p/c", 200, "ok"},
		{"a certificate with rights", "", c.pair(ours, "admin"), "GET", "/containerLogs/ns/p/c", 200, "ok"},
		{"another node", "", c.pair(ours, "system:node:n2"), "GET", "/metrics", 403, "Forbidden (user=system:node:n2, verb=get, resource=nodes, subresource(s)=[metrics])"},
		{"another authority's API server", "", c.pair(other.Signer(), pki.KubeletClientUser), "GET", "/metrics", 401, "Unauthorized"},
		{"a token that says to be the API server's", "token-of-" + pki.KubeletClientUser, nil, "GET", "/metrics", 403,
			"Forbidden (user=" + pki.KubeletClientUser + ", verb=get, resource=nodes, subresource(s)=[metrics])"},
		{"the same with a certificate of its own making", "token-of-" + pki.KubeletClientUser, c.pair(other.Signer(), pki.KubeletClientUser), "GET", "/metrics", 403,
			"Forbidden (user=" + pki.KubeletClientUser + ", verb=get, resource=nodes, subresource(s)=[metrics])"},
	} {
		if code, body := c.ask(who.token, who.pair, who.method, who.path); code != who.code || body != who.body {
			t.Errorf("%s gets %d %q, want %d %q", who.name, code, body, who.code, who.body)
		}
	}
}

// Who scrapes again and again is looked up once, and not turned away when the API server is away for a moment.
func TestAnswersAreRemembered(t *testing.T) {
	c := newCluster(t)
	for range 5 {
		if code, body := c.ask("token-of-prometheus", nil, "GET", "/metrics"); code != http.StatusOK {
			t.Fatalf("got %d %s", code, body)
		}
	}
	if c.reviews.Load() != 1 || c.rights.Load() != 1 {
		t.Errorf("%d questions for the token and %d for the rights, want one of each", c.reviews.Load(), c.rights.Load())
	}
	c.away.Store(true)
	if code, body := c.ask("token-of-prometheus", nil, "GET", "/metrics/resource"); code != http.StatusOK {
		t.Errorf("while the API server is away: %d %s", code, body)
	}
	if code, _ := c.ask("token-of-operator", nil, "GET", "/metrics"); code != http.StatusUnauthorized {
		t.Errorf("an unknown token while the API server is away: %d, want 401", code)
	}
	if code, body := c.ask("", c.pair(c.bundle.Signer(), "admin"), "GET", "/metrics"); code != http.StatusInternalServerError || !strings.HasPrefix(body, "Authorization error (user=admin, verb=get, resource=nodes") {
		t.Errorf("unknown rights while the API server is away: %d %s", code, body)
	}
	if code, _ := c.ask("", c.pair(c.bundle.Signer(), pki.KubeletClientUser), "GET", "/pods"); code != http.StatusOK {
		t.Errorf("the API server itself: %d", code)
	}
}

// Whoever makes tokens up has the API server asked about a few of them only.
func TestMadeUpTokens(t *testing.T) {
	c := newCluster(t)
	refused := 0
	for i := range 3 * mayFail {
		if code, _ := c.ask(fmt.Sprintf("made-up-%d", i), nil, "GET", "/metrics"); code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 || int(c.reviews.Load())+refused != 3*mayFail {
		t.Errorf("of %d made-up tokens the API server was asked about %d, and %d were refused",
			3*mayFail, c.reviews.Load(), refused)
	}
	if code, _ := c.ask("", c.pair(c.bundle.Signer(), "admin"), "GET", "/containerLogs/ns/p/c"); code != http.StatusOK {
		t.Errorf("a certificate from the same address: %d", code)
	}
}

func TestStrangersAreToldApart(t *testing.T) {
	s, now := newStrangers(), time.Now()
	one, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for i := range mayFail {
		if s.tires(one, now) {
			t.Fatalf("after %d", i)
		}
		s.failed(one, now)
	}
	if !s.tires(one, now) || s.tires(other, now) {
		t.Error("the address with too many is looked at, or another is not")
	}
	if s.tires(one, now.Add(time.Second)) {
		t.Error("a second later it is still refused")
	}
	s = newStrangers()
	for i := range byte(mayFail) {
		s.failed(netip.AddrFrom16([16]byte{0xfd, 15: i}), now)
	}
	if !s.tires(netip.MustParseAddr("fd00::ffff"), now) || s.tires(netip.MustParseAddr("fd00:0:0:1::1"), now) {
		t.Error("the addresses of a link count each for itself, or another link's with them")
	}
	for i := range maxStrangers {
		s.failed(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), now)
	}
	if n := s.of.Len(); n != maxStrangers {
		t.Errorf("%d addresses are remembered", n)
	}
}
