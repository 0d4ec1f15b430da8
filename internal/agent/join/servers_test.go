package join

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/pki"
)

// another starts one more server of the cluster, whose certificate is for another host.
func (c *cluster) another(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	dir := t.TempDir()
	keys, err := pki.ExportShared(filepath.Dir(c.bundle.CAFile()), t.TempDir())
	if err == nil {
		err = keys.Import(dir, t.TempDir())
	}
	if err != nil {
		t.Fatal(err)
	}
	own, err := pki.LoadOrCreate(dir, pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := own.ServingFiles()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Listener.Close()
	s.Listener = listener
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: c.bundle.CAPool()}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func addressOf(t *testing.T, server string) netip.AddrPort {
	t.Helper()
	parsed, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(parsed.Host)
}

func get(t *testing.T, id *Identity) string {
	t.Helper()
	client := &http.Client{Transport: id.transport, Timeout: 20 * time.Second}
	response, err := client.Get(id.server.String() + "/version")
	if err != nil {
		return err.Error()
	}
	response.Body.Close()
	return response.Header.Get("Server-Name") + " " + response.Status
}

func TestAnotherServer(t *testing.T) {
	c := newCluster(t)
	cfg := c.config(t)
	id, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var broken atomic.Bool
	named := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Server-Name", name)
			if broken.Load() && name == "second" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
	}
	second, third := c.another(t, named("second")), c.another(t, named("third"))
	id.Learn(t.Context(), []netip.AddrPort{addressOf(t, c.URL), addressOf(t, second.URL)})
	c.Close()
	id.reconnect()
	if got := get(t, id); got != "second 200 OK" {
		t.Errorf("with the first server gone the answer is %s", got)
	}

	// A node that starts while its first server is gone finds the other on its disk.
	cfg.Token = ""
	if id, err = Join(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if got := get(t, id); got != "second 200 OK" {
		t.Errorf("after a start the answer is %s", got)
	}

	// One that answers errors only is left.
	id.Learn(t.Context(), []netip.AddrPort{addressOf(t, second.URL), addressOf(t, third.URL)})
	broken.Store(true)
	for deadline := time.Now().Add(time.Minute); get(t, id) != "third 200 OK"; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the node stays with a server that answers errors only")
		}
	}

	// A server of another cluster is not taken, whatever address it is at.
	foreign := newCluster(t)
	if id, err = Join(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	second.Close()
	third.Close()
	id.Learn(t.Context(), []netip.AddrPort{addressOf(t, foreign.URL)})
	if got := get(t, id); !strings.Contains(got, "no server can be reached") && !strings.Contains(got, "unknown authority") {
		t.Errorf("with only a foreign server the answer is %s", got)
	}

	// What is on the disk may be anything.
	if err := os.WriteFile(id.store.path(serversFile), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = Join(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}
