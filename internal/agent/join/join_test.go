package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/pki"
)

// cluster is an API server that knows certificate signing requests and one join token, and signs at once.
type cluster struct {
	// away has the server end every connection.
	away atomic.Bool
	*httptest.Server
	bundle *pki.Bundle

	mu       sync.Mutex
	requests []*certificatesv1.CertificateSigningRequest
	users    []string // who sent each request
	life     time.Duration
	answer   func(*certificatesv1.CertificateSigningRequest) // instead of signing
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	bundle, err := pki.LoadOrCreate(t.TempDir(), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{bundle: bundle, life: time.Hour}
	certFile, keyFile := bundle.ServingFiles()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	c.Server = httptest.NewUnstartedServer(c)
	c.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: bundle.CAPool()}
	c.StartTLS()
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) token() string { return "abc123.0123456789abcdef." + c.bundle.CAHash() }

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	if c.away.Load() {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Path == "/version" {
		return
	}
	user := ""
	if len(r.TLS.PeerCertificates) > 0 {
		user = r.TLS.PeerCertificates[0].Subject.CommonName
	} else if r.Header.Get("Authorization") == "Bearer abc123.0123456789abcdef" {
		user = "system:bootstrap:abc123"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case user == "":
		respond(w, http.StatusUnauthorized, metav1.Status{Status: "Failure", Reason: metav1.StatusReasonUnauthorized, Code: 401, Message: "Unauthorized"})
	case r.Method == http.MethodPost && r.URL.Path == path:
		csr := &certificatesv1.CertificateSigningRequest{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, csr)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		csr.Name = csr.GenerateName + string(rune('a'+len(c.requests)))
		c.requests, c.users = append(c.requests, csr), append(c.users, user)
		if c.answer != nil {
			c.answer(csr)
		} else {
			c.sign(csr)
		}
		respond(w, http.StatusCreated, csr)
	case strings.HasPrefix(r.URL.Path, path+"/csr-"):
		respond(w, http.StatusOK, c.requests[r.URL.Path[len(r.URL.Path)-1]-'a'])
	default:
		http.NotFound(w, r)
	}
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (c *cluster) sign(csr *certificatesv1.CertificateSigningRequest) {
	block, _ := pem.Decode(csr.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return
	}
	usage := x509.ExtKeyUsageClientAuth
	if csr.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		usage = x509.ExtKeyUsageServerAuth
	}
	csr.Status.Certificate, _ = c.bundle.Signer().Sign(request.PublicKey, pki.Template{
		CommonName: request.Subject.CommonName, Organizations: request.Subject.Organization, DNSNames: request.DNSNames, IPs: request.IPAddresses,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, TTL: c.life,
	})
}

func (c *cluster) config(t *testing.T) Config {
	t.Helper()
	return Config{
		Server: c.URL, Token: c.token(), NodeName: "n1", NodeIPs: func() []net.IP { return []net.IP{net.IPv4(10, 0, 0, 7)} }, DataDir: t.TempDir(),
		Patience: 10 * time.Second,
	}
}

func TestJoin(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.requests) != 1 || c.users[0] != "system:bootstrap:abc123" {
		t.Fatalf("requests by %v, want one with the join token", c.users)
	}
	spec := c.requests[0].Spec
	if spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName ||
		len(spec.Usages) != 2 || spec.Usages[0] != certificatesv1.UsageDigitalSignature || spec.Usages[1] != certificatesv1.UsageClientAuth {
		t.Errorf("requested of %s for %v", spec.SignerName, spec.Usages)
	}
	subject := id.client.Load().Leaf.Subject
	if subject.CommonName != "system:node:n1" || len(subject.Organization) != 1 || subject.Organization[0] != "system:nodes" {
		t.Errorf("the node is %s", subject)
	}
	for _, name := range []string{caFile, clientFile, identityFile, kubeconfigFile} {
		info, err := os.Stat(filepath.Join(cfg.DataDir, "pki", name))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", name, info.Mode(), err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := id.servingCertificate(ended); err == nil {
		t.Error("there is a serving certificate before Run has got one")
	}
	config, err := clientcmd.BuildConfigFromFlags("", id.KubeconfigPath())
	if err != nil || config.Host != c.URL {
		t.Errorf("the kubeconfig leads to %v, %v", config, err)
	}

	// The next start needs no token and no server.
	c.Close()
	cfg.Token = ""
	again, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !again.client.Load().Leaf.Equal(id.client.Load().Leaf) {
		t.Error("the second start has another certificate")
	}
}

// TestRun gets the serving certificate, then renews both after four fifths of their lives.
func TestRun(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	clock := testingclock.NewFakeClock(time.Now())
	cfg.Clock = clock
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- id.Run(ctx) }()
	// Who connects before waits for it.
	serving, err := id.servingCertificate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := serving.Leaf.VerifyHostname("10.0.0.7"); err != nil {
		t.Error(err)
	}
	if err := serving.Leaf.VerifyHostname("n1"); err != nil {
		t.Error(err)
	}
	c.mu.Lock()
	if c.users[1] != "system:node:n1" {
		t.Errorf("the serving certificate is requested by %s, want the node", c.users[1])
	}
	c.mu.Unlock()
	client := id.client.Load()
	eventually(t, func() bool { return clock.Waiters() == 3 })
	clock.Step(40 * time.Minute) // less than three quarters of the life, which begins five minutes early
	eventually(t, func() bool { return clock.Waiters() == 3 })
	if id.client.Load() != client || id.serving.Load() != serving {
		t.Error("a certificate is renewed too early")
	}
	renewed := func() bool { return id.client.Load() != client && id.serving.Load() != serving }
	for !renewed() {
		clock.Step(time.Minute)
		// Whoever the step woke waits again when its work is done, or is done with all of it.
		eventually(t, func() bool { return clock.Waiters() == 3 || renewed() })
		if clock.Now().After(client.Leaf.NotAfter) {
			t.Fatal("a certificate is not renewed before it ends")
		}
	}
	stored, err := id.store.readPair(clientFile)
	if err != nil || stored.Leaf.Equal(client.Leaf) {
		t.Errorf("the renewed certificate is not stored: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A node that has another address gets a serving certificate for that at once; one that may not have it keeps its name.
func TestAddressChanges(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	var address atomic.Pointer[net.IP]
	cfg.NodeIPs = func() []net.IP {
		if ip := address.Load(); ip != nil {
			return []net.IP{*ip}
		}
		return nil
	}
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- id.Run(ctx) }()
	serving, err := id.servingCertificate(t.Context())
	if err != nil || len(serving.Leaf.IPAddresses) != 0 || serving.Leaf.VerifyHostname("n1") != nil {
		t.Fatalf("without an address the certificate is %v, %v; want one for its name", serving, err)
	}
	for _, text := range []string{"10.0.0.7", "10.0.0.9"} {
		ip := net.ParseIP(text)
		address.Store(&ip)
		id.AddressChanged()
		eventually(t, func() bool { return id.serving.Load().Leaf.VerifyHostname(text) == nil })
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// The next start begins without a server, and with another address: the API server can call the node by its name.
	ip := net.ParseIP("10.0.0.11")
	address.Store(&ip)
	again, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	pair := again.serving.Load()
	if pair == nil || pair.Leaf.VerifyHostname("n1") != nil || !again.servingOutdated(pair) {
		t.Errorf("after a start with another address the certificate is %v", pair)
	}
	// A cluster that refuses the address is not asked for it again and again.
	asked := again.cfg.NodeIPs()
	again.asked.Store(&asked)
	if again.servingOutdated(pair) {
		t.Error("a certificate with the name alone is outdated for ever")
	}
}

func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never happens")
		}
	}
}

func TestJoinErrors(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	tests := []struct {
		name   string
		change func(*Config)
		answer func(*certificatesv1.CertificateSigningRequest)
		want   string
	}{
		{name: "no token", change: func(c *Config) { c.Token = "" }, want: "has not joined a cluster yet"},
		{name: "half a token", change: func(c *Config) { c.Token = "abc123" }, want: "join token: expected three parts"},
		{name: "wrong secret", change: func(cfg *Config) { cfg.Token = "abc123.ffffffffffffffff." + c.bundle.CAHash() }, want: "the server refused the join token: it is wrong or has expired"},
		{name: "another cluster's token", change: func(cfg *Config) { cfg.Token = other.token() }, want: "its CA is not the one that the join token names"},
		{name: "no such server", change: func(cfg *Config) { cfg.Server = strings.Replace(closed.URL, "http:", "https:", 1) }, want: "cannot reach the server at https://127.0.0.1"},
		{name: "not HTTPS", change: func(cfg *Config) { cfg.Server = strings.Replace(plain.URL, "http:", "https:", 1) }, want: "server gave HTTP response to HTTPS client"},
		{name: "no URL", change: func(cfg *Config) { cfg.Server = "127.0.0.1:6443" }, want: "expected https://HOST:PORT"},
		{name: "name that the certificate lacks", change: func(cfg *Config) { cfg.Server = strings.Replace(c.URL, "127.0.0.1", "ip6-localhost", 1) }, want: "certificate"},
		{name: "slow clock", change: func(cfg *Config) { cfg.Clock = testingclock.NewFakeClock(time.Now().Add(-48 * time.Hour)) }, want: "set the clock"},
		{name: "fast clock", change: func(cfg *Config) { cfg.Clock = testingclock.NewFakeClock(time.Now().Add(50 * 365 * 24 * time.Hour)) }, want: "set the clock"},
		{name: "denied", answer: condition(certificatesv1.CertificateDenied), want: "was denied: because"},
		{name: "failed", answer: condition(certificatesv1.CertificateFailed), want: "could not be signed: because"},
		{name: "somebody else's certificate", answer: func(csr *certificatesv1.CertificateSigningRequest) {
			csr.Status.Certificate, _, _ = c.bundle.Signer().NewClient("system:node:n2", nil, time.Hour)
		}, want: "unusable certificate"},
		{name: "never signed", change: func(cfg *Config) { cfg.Patience = time.Second }, answer: func(*certificatesv1.CertificateSigningRequest) {}, want: "was not signed in time"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c.mu.Lock()
			c.answer = test.answer
			c.mu.Unlock()
			cfg := c.config(t)
			cfg.Patience = 2 * time.Second
			if test.change != nil {
				test.change(&cfg)
			}
			if test.name == "name that the certificate lacks" {
				if _, err := net.LookupHost("ip6-localhost"); err != nil {
					t.Skip("this machine has no second name for itself")
				}
			}
			_, err := Join(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "0123456789abcdef.")) {
				t.Errorf("the error has several lines or shows the token: %v", err)
			}
		})
	}
}

func condition(kind certificatesv1.RequestConditionType) func(*certificatesv1.CertificateSigningRequest) {
	return func(csr *certificatesv1.CertificateSigningRequest) {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue, Message: "because"}}
	}
}

// TestTokenIsNotShownToAStranger counts what a server with the wrong CA gets to see.
func TestTokenIsNotShownToAStranger(t *testing.T) {
	c, stranger := newCluster(t), newCluster(t)
	cfg := c.config(t)
	cfg.Server = stranger.URL
	var seen []string
	stranger.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.Header.Get("Authorization")) })
	if _, err := Join(t.Context(), cfg); err == nil {
		t.Error("the stranger is trusted")
	}
	stranger.Close()
	if strings.Join(seen, "") != "" {
		t.Errorf("the stranger is shown %q", seen)
	}
}

func TestStoredIdentity(t *testing.T) {
	c, other := newCluster(t), newCluster(t)
	tests := []struct {
		name   string
		change func(t *testing.T, dir string, cfg *Config)
		want   string // "" when joining succeeds
	}{
		{"unchanged", func(*testing.T, string, *Config) {}, ""},
		{"another name", func(_ *testing.T, _ string, cfg *Config) { cfg.NodeName = "n2" }, "is the certificate of system:node:n1, not of node n2"},
		{"another cluster", func(_ *testing.T, _ string, cfg *Config) { cfg.Token = other.token() }, "belongs to another cluster"},
		{"another cluster, but never joined", func(t *testing.T, dir string, cfg *Config) {
			remove(t, dir, clientFile)
			cfg.Token, cfg.Server = other.token(), other.URL
		}, ""},
		{"a mangled token", func(_ *testing.T, _ string, cfg *Config) { cfg.Token = "abc123" }, ""},
		{"a mangled token, but never joined", func(t *testing.T, dir string, cfg *Config) {
			remove(t, dir, clientFile)
			cfg.Token = "abc123"
		}, "join token: expected three parts"},
		{"no client certificate", func(t *testing.T, dir string, _ *Config) { remove(t, dir, clientFile) }, ""},
		{"half a client certificate", func(t *testing.T, dir string, _ *Config) { truncate(t, dir, clientFile) }, "is not usable; remove it and join again"},
		{"half a CA", func(t *testing.T, dir string, _ *Config) { truncate(t, dir, caFile) }, "holds no certificate; remove it"},
		{"expired", func(_ *testing.T, _ string, cfg *Config) {
			cfg.Clock = testingclock.NewFakeClock(time.Now().Add(2 * time.Hour))
		}, ""},
		{"expired without a token", func(_ *testing.T, _ string, cfg *Config) {
			cfg.Clock = testingclock.NewFakeClock(time.Now().Add(2 * time.Hour))
			cfg.Token = ""
		}, ""},
		{"left-overs of a crash", func(t *testing.T, dir string, _ *Config) {
			if err := os.WriteFile(filepath.Join(dir, "."+clientFile+"-123"), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := c.config(t)
			if _, err := Join(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			test.change(t, filepath.Join(cfg.DataDir, "pki"), &cfg)
			_, err := Join(t.Context(), cfg)
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestUnusableCertificate starts a node whose certificate cannot be used: it has its identity all the same, says what to do, and
// joins again as soon as that can be done.
func TestUnusableCertificate(t *testing.T) {
	c := newCluster(t)
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string
		// undo makes it possible to join.
		undo func(*Identity)
	}{
		{"ended, and no token", func(cfg *Config) { cfg.Token = "" }, "start the agent with a join token", nil},
		{"ended, and a bad token", func(cfg *Config) { cfg.Token = "abc123.ffffffffffffffff." + c.bundle.CAHash() }, "make a new one with `everynode token create`", nil},
		{"ended, and the server is away", func(cfg *Config) { cfg.Server = "https://127.0.0.1:1" }, "connection refused",
			func(id *Identity) { id.server, _ = url.Parse(c.URL) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := c.config(t)
			if _, err := Join(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			clock := testingclock.NewFakeClock(time.Now().Add(2 * time.Hour))
			cfg.Clock = clock
			test.change(&cfg)
			id, err := Join(t.Context(), cfg)
			if err != nil {
				t.Fatalf("the node has no identity: %v", err)
			}
			if err := id.refreshClient(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if valid(id.client.Load().Leaf, clock.Now()) {
				t.Fatal("the certificate is not what the test wants")
			}
			if test.undo == nil {
				return
			}
			test.undo(id)
			c.mu.Lock()
			c.life = 3 * time.Hour // still good by the clock of the node
			c.mu.Unlock()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- id.Run(ctx) }()
			eventually(t, func() bool {
				clock.Step(firstRetry) // by which the certificate for serving is tried again
				return valid(id.client.Load().Leaf, clock.Now()) && id.serving.Load() != nil
			})
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExplainClock(t *testing.T) {
	ended := x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time 2036-01-01 is after 2026-01-01"}
	err := explainClock(&url.Error{Op: "Post", URL: "https://x", Err: &tls.CertificateVerificationError{Err: ended}})
	if !strings.Contains(err.Error(), "this machine's clock") || !strings.Contains(err.Error(), "2036-01-01") {
		t.Errorf("error %v, want one that speaks of the clock and says its time", err)
	}
	for _, other := range []error{errors.New("boom"), x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}} {
		if got := explainClock(other); !errors.Is(got, other) || got.Error() != other.Error() {
			t.Errorf("%v became %v", other, got)
		}
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Truncate(filepath.Join(dir, name), 40); err != nil {
		t.Fatal(err)
	}
}
