package beside

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/everynode/everynode/internal/beside/certs"
	"github.com/everynode/everynode/internal/beside/registration"
)

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	end   chan struct{}
}

// Accept implements net.Listener.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipes) Close() error { close(p.end); return nil }

// Addr implements net.Listener.
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// ask asks a webhook as an API server does that trusts a bundle, and returns what it serves with.
func (p *pipes) ask(ctx context.Context, bundle []byte, name string) (*x509.Certificate, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, errors.New("the bundle holds no certificate")
	}
	transport := &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12},
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			p.conns <- theirs
			return ours, nil
		},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+name+registration.PodsPath, strings.NewReader("?"))
	if err != nil {
		return nil, err
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return answer.TLS.PeerCertificates[0], answer.Body.Close()
}

// TestCertificatesAreRenewedInTime has two replicas go through the time in which a certificate becomes old. An API
// server asks both of them all the while, one that has just read whom to trust and one that read it a while ago.
func TestCertificatesAreRenewedInTime(t *testing.T) {
	const day = 24 * time.Hour
	for name, age := range map[string]time.Duration{"serving": 90 * day / 3 * 2, "authority": 365 * day / 3 * 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { renews(t, age, name == "authority") })
		})
	}
}

// renews begins an hour before what is so old is due.
func renews(t *testing.T, age time.Duration, authority bool) {
	ctx, stop := context.WithCancel(t.Context())
	client := fake.NewClientset()
	guests := []*Guest{newGuest(t, client), newGuest(t, client)}
	names, err := guests[0].names()
	if err != nil {
		t.Fatal(err)
	}
	var held map[string][]byte
	for at := time.Now().Add(time.Hour - age); at.Before(time.Now()); at = at.Add(12 * time.Hour) {
		if held, err = certs.Renew(held, names, at, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	_, err = client.CoreV1().Secrets("kube-system").Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "everynode-webhook"}, Data: held}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended, at := make(chan error, len(guests)), []*pipes{}
	for _, g := range guests {
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		at = append(at, p)
		go g.keepCertificate(ctx)
		go func() { ended <- g.webhook.Serve(ctx, p) }()
	}
	bundle := func() []byte {
		held, err := guests[0].certificate(ctx)
		if err == nil {
			err = guests[0].register(ctx, held)
		}
		if err != nil {
			t.Fatal(err)
		}
		hooks, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, registration.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return hooks.Webhooks[0].ClientConfig.CABundle
	}
	first, served := bundle(), map[string]bool{}
	before, last := first, first
	for end := time.Now().Add(3 * time.Hour); time.Now().Before(end); {
		time.Sleep(time.Minute)
		before, last = last, bundle()
		for i, p := range at {
			for _, trusted := range [][]byte{before, last} {
				c, err := p.ask(ctx, trusted, names[0])
				if err != nil {
					t.Fatalf("at %s replica %d is not trusted: %v", time.Now(), i, err)
				}
				served[string(c.Raw)] = true
			}
		}
	}
	if (string(first) != string(last)) != authority || len(served) < 2 {
		t.Errorf("the bundle changed: %v; %d certificates were served", string(first) != string(last), len(served))
	}
	stop()
	for range guests {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	time.Sleep(time.Minute) // until all connections are closed
}
