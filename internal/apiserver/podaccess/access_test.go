package podaccess

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/agent/streaming"
	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/pki"
)

// nothing runs no containers.
type nothing struct{}

func (nothing) Container(context.Context, string, string, string, bool) (streaming.Container, error) {
	return streaming.Container{}, nil
}
func (nothing) Sandbox(context.Context, string, string) (string, error) { return "", nil }
func (nothing) Exec(context.Context, string, []string, streaming.Streams) (*url.URL, error) {
	return nil, nil //nolint:nilnil // It is not called.
}
func (nothing) Attach(context.Context, string, streaming.Streams) (*url.URL, error) {
	return nil, nil //nolint:nilnil // It is not called.
}
func (nothing) PortForward(context.Context, string, []int32) (*url.URL, error) {
	return nil, nil //nolint:nilnil // It is not called.
}
func (nothing) Running(context.Context, string) (bool, error) { return false, nil }

// agent runs a node's server with one pod, which has the address, and returns access to it.
func agent(t *testing.T, podIP string) *Access {
	t.Helper()
	bundle, err := pki.LoadOrCreate(filepath.Join(t.TempDir(), "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := bundle.NodeSigner().Sign(&key.PublicKey, pki.Template{
		CommonName: "system:node:n1.example", DNSNames: []string{"n1.example"}, TTL: time.Hour,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(signed)
	pair := &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
	server, err := streaming.Listen(streaming.Config{
		Address: "127.0.0.1:0", ClientCAs: bundle.CAPool, Protect: func(next http.Handler) http.Handler { return next }, Lookup: nothing{}, Runtime: nothing{},
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil },
		Pods: func() []*corev1.Pod {
			return []*corev1.Pod{
				{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: podIP}}}},
				{Spec: corev1.PodSpec{HostNetwork: true}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}}},
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1.example"}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(server.Address().(*net.TCPAddr).Port)
	nodes := func(_ context.Context, name string) (*corev1.Node, error) {
		if name != n.Name {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
		}
		return n, nil
	}
	return New(nodecall.New(bundle.NodeClientTLS(), nodes, noRefusals{}), nodes)
}

// echo answers each connection with what it says, in capitals, and then ends.
func echo(t *testing.T, address string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				said, err := io.ReadAll(c)
				if err == nil {
					_, _ = c.Write([]byte(strings.ToUpper(string(said))))
				}
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func TestConnectionsToPodsGoThroughTheirAgent(t *testing.T) {
	const podIP = "127.0.0.2"
	access, pod := agent(t, podIP), echo(t, podIP)
	conn, err := access.Dial(t.Context(), "tcp", PodHost("n1.example", pod))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The end of what one side says reaches the other, and the answer still comes.
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "HELLO" {
		t.Errorf("got %q, %v", got, err)
	}

	closed := netip.AddrPortFrom(netip.MustParseAddr(podIP), 1)
	other := echo(t, "127.0.0.3")
	for name, c := range map[string]struct{ host, want string }{
		"a port that nobody listens at":     {PodHost("n1.example", closed), "502 Bad Gateway: dial tcp 127.0.0.2:1: connect: connection refused"},
		"an address that is no pod's there": {PodHost("n1.example", other), `404 Not Found: pods "127.0.0.3" not found`},
		"a node without an agent":           {PodHost("simulated", pod), "the agent of node simulated cannot be called"},
	} {
		conn, err := access.Dial(t.Context(), "tcp", c.host)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// What has the node's own address, and what is no pod, is reached directly.
	for _, host := range []string{PodHost("n1.example", echo(t, "127.0.0.1")), other.String()} {
		conn, err := access.Dial(t.Context(), "tcp", host)
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		conn.Close()
	}
}

func TestAgentThatHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	n := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(silent.Addr().(*net.TCPAddr).Port)
	nodes := func(context.Context, string) (*corev1.Node, error) { return n, nil }
	access := New(nodecall.New(&tls.Config{InsecureSkipVerify: true}, nodes, noRefusals{}), nodes)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := access.Dial(ctx, "tcp", PodHost("n", netip.MustParseAddrPort("10.1.2.3:80"))); err == nil {
		t.Error("a connection came about")
	}
}

func TestPodHost(t *testing.T) {
	for _, text := range []string{"10.1.2.3:80", "[2001:db8::1]:443"} {
		want := netip.MustParseAddrPort(text)
		name, got, ok := parsePodHost(PodHost("a.b-c", want))
		if !ok || name != "a.b-c" || got != want {
			t.Errorf("%s became %s of %q, %v", text, got, name, ok)
		}
	}
	for _, host := range []string{"10.1.2.3:80", "example.com:80", "x.n" + podSuffix + ":80", "10-1-2-3" + podSuffix + ":80", "10-1-2-3.n" + podSuffix} {
		if _, _, ok := parsePodHost(host); ok {
			t.Errorf("%s is taken for a pod", host)
		}
	}
	for address, want := range map[string]bool{
		"10.1.2.3": true, "2001:db8::1": true, "": false, "x": false, "127.0.0.1": false, "169.254.169.254": false, "::1": false,
		"fe80::1": false, "0.0.0.0": false, "224.0.0.1": false, "::ffff:127.0.0.1": false,
	} {
		if _, err := Proxyable(address); (err == nil) != want {
			t.Errorf("%q: %v, want allowed %v", address, err, want)
		}
	}
}

// slice is one of the service "hook", with the port "https" at 8443.
func slice(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hook-x", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
		Ports:      []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(8443))}}, Endpoints: endpoints,
	}
}

func TestServicesLeadToReadyEndpoints(t *testing.T) {
	hook := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hook"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Name: "https", Port: 443}, {Name: "other", Port: 80}},
	}}
	elsewhere := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "elsewhere"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeExternalName, ExternalName: "hook.example",
	}}
	ready := discoveryv1.Endpoint{Addresses: []string{"10.1.2.3"}, NodeName: ptr.To("n1"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}
	unready := discoveryv1.Endpoint{Addresses: []string{"10.1.2.4"}, NodeName: ptr.To("n1"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}
	loopback := discoveryv1.Endpoint{Addresses: []string{"127.0.0.1"}}
	outside := discoveryv1.Endpoint{Addresses: []string{"192.0.2.9"}}
	for name, c := range map[string]struct {
		endpoints []discoveryv1.Endpoint
		service   string
		port      int32
		want      string
	}{
		"a pod":              {[]discoveryv1.Endpoint{unready, ready, loopback}, "hook", 443, "https://10-1-2-3.n1.pod-of-node.invalid:8443"},
		"outside":            {[]discoveryv1.Endpoint{outside}, "hook", 443, "https://192.0.2.9:8443"},
		"none ready":         {[]discoveryv1.Endpoint{unready}, "hook", 443, `no endpoints available for service "hook"`},
		"the own machine":    {[]discoveryv1.Endpoint{loopback}, "hook", 443, `no endpoints available for service "hook"`},
		"another port":       {[]discoveryv1.Endpoint{ready}, "hook", 80, `no endpoints available for service "hook"`},
		"no such port":       {[]discoveryv1.Endpoint{ready}, "hook", 8443, `no service port 8443 found for service "hook"`},
		"no such service":    {nil, "missing", 443, `services "missing" not found`},
		"an external name":   {nil, "elsewhere", 443, "https://hook.example:443"},
		"no endpoint at all": {nil, "hook", 443, `no endpoints available for service "hook"`},
	} {
		got, err := NewServices(fake.NewClientset(hook, elsewhere, slice(c.endpoints...))).ResolveEndpoint("ns", c.service, c.port)
		if text := fmt.Sprint(got); err == nil && text != c.want || err != nil && err.Error() != c.want {
			t.Errorf("%s: %s, %v, want %s", name, text, err, c.want)
		}
	}
}

func TestNobodyIsGivenTheServersIdentity(t *testing.T) {
	shown := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { shown <- len(r.TLS.PeerCertificates) }))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	access := agent(t, "127.0.0.2")
	response, err := (&http.Client{Transport: access.Transport()}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if n := <-shown; n != 0 {
		t.Errorf("what is proxied to was shown %d certificates", n)
	}
}

// noRefusals takes every certificate that is in order.
type noRefusals struct{}

func (noRefusals) Check(*x509.Certificate) error { return nil }
func (noRefusals) OnRevoke(func(string))         {}

// TestServicesDoNotLeadToTheMachineItself dials what an external name may stand for.
func TestServicesDoNotLeadToTheMachineItself(t *testing.T) {
	access := agent(t, "127.0.0.2")
	here := echo(t, "127.0.0.1")
	for _, host := range []string{here.String(), fmt.Sprintf("localhost:%d", here.Port()), fmt.Sprintf("[::1]:%d", here.Port()), "169.254.169.254:80", fmt.Sprintf("0.0.0.0:%d", here.Port()), fmt.Sprintf("[::ffff:127.0.0.1]:%d", here.Port())} {
		conn, err := access.DialService(t.Context(), "tcp", host)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), ErrAddressNotAllowed.Error()) {
			t.Errorf("%s: %v", host, err)
		}
	}
	pod := echo(t, "127.0.0.2")
	conn, err := access.DialService(t.Context(), "tcp", PodHost("n1.example", pod))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
