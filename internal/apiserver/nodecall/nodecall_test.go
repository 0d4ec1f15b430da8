package nodecall

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/proxy"

	"github.com/everynode/everynode/internal/pki"
)

// fleet is some nodes with agents that say who calls them.
type fleet struct {
	bundle *pki.Bundle
	nodes  map[string]*corev1.Node
	// refused are the nodes whose certificates are revoked.
	refused map[string]bool
	revoke  func(node string)
}

func (f *fleet) Check(cert *x509.Certificate) error {
	if f.refused[cert.Subject.CommonName] {
		return errors.New("revoked")
	}
	return nil
}

func (f *fleet) OnRevoke(revoke func(node string)) { f.revoke = revoke }

func newFleet(t *testing.T) *fleet {
	t.Helper()
	bundle, err := pki.LoadOrCreate(t.TempDir(), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{bundle: bundle, nodes: map[string]*corev1.Node{}, refused: map[string]bool{}}
}

func (f *fleet) node(_ context.Context, name string) (*corev1.Node, error) {
	if n := f.nodes[name]; n != nil {
		return n, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

// add runs an agent with a certificate and lets a node say that it is there.
func (f *fleet) add(t *testing.T, name string, certificate tls.Certificate) {
	t.Helper()
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s calls %s %s", r.TLS.PeerCertificates[0].Subject.CommonName, name, r.URL.Path)
	}))
	agent.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: f.bundle.CAPool()}
	agent.StartTLS()
	t.Cleanup(agent.Close)
	f.point(name, agent.Listener.Addr())
}

func (f *fleet) point(name string, to net.Addr) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(to.(*net.TCPAddr).Port)
	f.nodes[name] = n
}

func certificate(t *testing.T, signer *pki.Signer, node string, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	data, err := signer.Sign(&key.PublicKey, pki.Template{CommonName: "system:node:" + node, DNSNames: names, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(data, pemKey(der))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func pemKey(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

func (f *fleet) call(t *testing.T, name string) (string, error) {
	t.Helper()
	c := New(f.bundle.NodeClientTLS(), f.node, f)
	t.Cleanup(c.Transport().CloseIdleConnections)
	location, ok := c.URL(f.nodes[name], "/pods", nil)
	if !ok {
		t.Fatalf("node %s cannot be called", name)
	}
	response, err := (&http.Client{Transport: c.Transport(), Timeout: 10 * time.Second}).Get(location.String())
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// A node is called by its name, and only its own agent is spoken to, whatever addresses nodes report.
func TestCall(t *testing.T) {
	f := newFleet(t)
	f.add(t, "n1", certificate(t, f.bundle.NodeSigner(), "n1", "n1"))
	if got, err := f.call(t, "n1"); err != nil || got != "kube-apiserver-kubelet-client calls n1 /pods" {
		t.Errorf("got %q, %v", got, err)
	}
	apiServer, err := tls.LoadX509KeyPair(f.bundle.ServingFiles())
	if err != nil {
		t.Fatal(err)
	}
	f.add(t, "points-at-the-api", apiServer)
	f.add(t, "old", certificate(t, f.bundle.Signer(), "old", "old"))
	f.add(t, "thief", certificate(t, f.bundle.NodeSigner(), "thief", "thief", "n1"))
	thief := f.nodes["thief"]
	f.nodes["points-at-n1"], f.nodes["n1"].Name = f.nodes["n1"].DeepCopy(), "n1"
	f.nodes["points-at-n1"].Name = "points-at-n1"
	for name, says := range map[string]string{
		"points-at-the-api": `shows the certificate of "kube-apiserver"`,
		"points-at-n1":      `shows the certificate of "system:node:n1"`,
		"old":               "not of the nodes' CA",
	} {
		if got, err := f.call(t, name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, says)
		}
	}
	f.nodes["n1"].Status = thief.Status
	if got, err := f.call(t, "n1"); err == nil {
		t.Errorf("a node that has a certificate for n1's name was taken for n1: %q", got)
	}
}

// The proxy that carries exec takes the transport apart and makes its own connection: that
// too is to the node that is meant, and to no other.
func TestConnectionsAreMadeToTheNodeThatIsMeant(t *testing.T) {
	f := newFleet(t)
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
		w.WriteHeader(http.StatusSwitchingProtocols)
	}))
	agent.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, f.bundle.NodeSigner(), "n1", "n1")}, NextProtos: []string{"h2", "http/1.1"}}
	agent.StartTLS()
	t.Cleanup(agent.Close)
	f.point("n1", agent.Listener.Addr())
	f.point("n2", agent.Listener.Addr())
	c := New(f.bundle.NodeClientTLS(), f.node, f)
	for name, want := range map[string]int{"n1": http.StatusSwitchingProtocols, "n2": http.StatusBadGateway} {
		location, _ := c.URL(f.nodes[name], "/exec/ns/pod/c", nil)
		front := httptest.NewServer(proxy.NewUpgradeAwareHandler(location, c.TransportTo(name), false, true, badGateway{}))
		t.Cleanup(front.Close)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Connection", "Upgrade")
		request.Header.Set("Upgrade", "SPDY/3.1")
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("a connection to %s: %s, want %d", name, response.Status, want)
		}
	}
}

// badGateway answers what a proxy cannot do.
type badGateway struct{}

func (badGateway) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

func TestNodesThatCannotBeCalled(t *testing.T) {
	f := newFleet(t)
	c := New(f.bundle.NodeClientTLS(), f.node, f)
	if u, ok := c.URL(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "simulated"}}, "/pods", nil); ok {
		t.Errorf("a node without an agent is at %s", u)
	}
	if _, err := c.dial(t.Context(), "tcp", "gone:10250"); err == nil || !strings.Contains(err.Error(), "look up node gone") {
		t.Errorf("error %v", err)
	}
	f.nodes["mute"] = &corev1.Node{}
	if _, err := c.dial(t.Context(), "tcp", "mute:10250"); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("error %v", err)
	}
}

// A node that reports a name in place of addresses does not have the server knock at its own ports.
func TestANameDoesNotLeadHome(t *testing.T) {
	f := newFleet(t)
	f.add(t, "n1", certificate(t, f.bundle.NodeSigner(), "n1", "n1"))
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		f.nodes["n1"].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}}
		_, err := f.call(t, "n1")
		if err == nil || !strings.Contains(err.Error(), "no address of a node") {
			t.Errorf("%s is called: %v", name, err)
		}
	}
}

// Wherever a node says that its agent is, what stands there is greeted, and told nothing before it has shown who it is.
func TestAStrangerIsOnlyGreeted(t *testing.T) {
	f := newFleet(t)
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	f.point("n1", stranger.Addr())
	type told struct{ greeting, rest []byte }
	heard := make(chan told, 1)
	go func() {
		defer close(heard)
		connection, err := stranger.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		head := make([]byte, 5) // of a record: its type, two bytes of a version, two of its length
		_, _ = io.ReadFull(connection, head)
		body := make([]byte, int(head[3])<<8+int(head[4]))
		_, _ = io.ReadFull(connection, body)
		_, _ = connection.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
		rest, _ := io.ReadAll(connection) // a connection that is reset has told what it has told
		heard <- told{append(head, body...), rest}
	}()
	if got, err := f.call(t, "n1"); err == nil {
		t.Errorf("a program that is no agent answered %q", got)
	}
	const handshake, clientHello, alert = 22, 1, 21
	got := <-heard
	if len(got.greeting) < 6 || got.greeting[0] != handshake || got.greeting[5] != clientHello {
		t.Fatalf("it is greeted with %.32q, want a ClientHello", got.greeting)
	}
	if len(got.rest) > 0 && got.rest[0] != alert {
		t.Errorf("after the greeting it is told %.32q", got.rest)
	}
}

// A connection shows the certificate that there was when it was made. Requests after a change are not made on it.
func TestChangedCertificateIsShown(t *testing.T) {
	f := newFleet(t)
	f.add(t, "n1", certificate(t, f.bundle.NodeSigner(), "n1", "n1"))
	c := New(f.bundle.NodeClientTLS(), f.node, f)
	t.Cleanup(func() { c.Transport().CloseIdleConnections() })
	location, _ := c.URL(f.nodes["n1"], "/pods", nil)
	for _, want := range []bool{false, true, false} { // whether the connection is one that was there
		if !want {
			c.Renew()
		}
		reused := false
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Transport().RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if reused != want {
			t.Errorf("a connection that was there is used: %v, want %v", reused, want)
		}
	}
}

// When a node is revoked what is open to its agent ends, and it is called no more.
func TestRevokedNodeIsNotCalled(t *testing.T) {
	f := newFleet(t)
	started, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(release) })
	agent := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		close(started)
		<-release
	}))
	agent.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, f.bundle.NodeSigner(), "n1", "n1")}}
	agent.StartTLS()
	t.Cleanup(agent.CloseClientConnections)
	f.point("n1", agent.Listener.Addr())
	c := New(f.bundle.NodeClientTLS(), f.node, f)
	location, _ := c.URL(f.nodes["n1"], "/containerLogs", nil)
	client := &http.Client{Transport: c.Transport()}
	response, err := client.Get(location.String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	<-started
	f.revoke("n2")
	if len(c.to("n1")) != 1 {
		t.Fatal("the end of another node ended the connection")
	}
	f.refused["system:node:n1"] = true
	f.revoke("n1")
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("the stream from a revoked node ended as if it were complete")
	}
	if response, err := client.Get(location.String()); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked node is called: %v, %v", response, err)
	}
	if open := c.to("n1"); len(open) != 0 {
		t.Errorf("%d connections to a revoked node stay open", len(open))
	}
}
