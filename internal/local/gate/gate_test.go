package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/pki"
)

func TestStandings(t *testing.T) {
	s := make(standings, 3)
	if got := s.order(); !slices.Equal(got, []int{0, 1, 2}) || len(s.ready()) != 0 {
		t.Errorf("before anybody was asked the order is %v, ready are %v", got, s.ready())
	}
	for i, step := range []struct {
		number      int
		ok, refused bool
		turned      bool
		order       string
	}{
		{1, true, false, true, "[1 0 2]"},
		{2, true, false, true, "[1 2 0]"},
		{1, true, false, false, "[1 2 0]"},
		{1, false, false, false, "[1 2 0]"}, // a busy machine may be slow once
		{1, true, false, false, "[1 2 0]"},
		{1, false, false, false, "[1 2 0]"},
		{1, false, false, true, "[2 0 1]"},
		{1, false, false, false, "[2 0 1]"},
		{2, false, true, true, "[0 1 2]"}, // one that refuses connections has ended
		{1, true, false, true, "[1 0 2]"},
	} {
		turned := s.asked(step.number, step.ok, step.refused)
		if got := fmt.Sprint(s.order()); turned != step.turned || got != step.order {
			t.Errorf("step %d: turned %v, order %s; want %v, %s", i, turned, got, step.turned, step.order)
		}
	}
}

// gated starts servers that say who they are and can be made unready, and a gate.
func gated(t *testing.T, count int) (url string, ill []*atomic.Bool, g *Gate) {
	t.Helper()
	var addresses []netip.AddrPort
	for n := range count {
		bad := &atomic.Bool{}
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if bad.Load() && r.URL.Path == "/readyz" {
				http.Error(w, "no", http.StatusInternalServerError)
				return
			}
			if r.URL.Path == "/hang" {
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			fmt.Fprint(w, n)
		}))
		t.Cleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
		addresses, ill = append(addresses, netip.MustParseAddrPort(server.Listener.Addr().String())), append(ill, bad)
	}
	g = New(addresses, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() { g.Run(ctx, []net.Listener{l}) })
	t.Cleanup(func() {
		cancel()
		over.Wait()
	})
	return "https://" + l.Addr().String(), ill, g
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A server that says nothing to those who show nothing is asked as its administrator.
func TestGateAsksAsTheAdministrator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys, err := pki.LoadOrCreate(dir, pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := keys.ServingFiles()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || len(r.TLS.VerifiedChains) == 0 ||
			r.TLS.VerifiedChains[0][0].Subject.CommonName != pki.AdminUser {
			http.Error(w, "who are you", http.StatusUnauthorized)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven,
		ClientCAs: keys.CAPool()}
	server.StartTLS()
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	g := New([]netip.AddrPort{netip.MustParseAddrPort(server.Listener.Addr().String())}, kubeconfig)
	if err := g.ask(t.Context(), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before there is a kubeconfig: %v", err)
	}
	// It names the gate, behind which are all servers.
	if err := keys.WriteKubeconfig(kubeconfig, "https://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if err := g.ask(t.Context(), 0); err != nil {
		t.Errorf("with the administrator's kubeconfig: %v", err)
	}
}

func TestGateLeadsToWhoIsReady(t *testing.T) {
	t.Parallel()
	url, ill, g := gated(t, 3)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: time.Minute}
	answers := func(want string) {
		t.Helper()
		eventually(t, "server "+want+" answers", func() error {
			response, err := client.Get(url)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			got, err := io.ReadAll(response.Body)
			if string(got) != want {
				err = errors.Join(err, fmt.Errorf("it is %s", got))
			}
			return err
		})
	}
	answers("0")
	eventually(t, "all are ready", func() error {
		if !g.IsReady(0) || !g.IsReady(1) || !g.IsReady(2) {
			return errors.New("not all")
		}
		return nil
	})
	// A watch on the first ends when that one is not ready any more.
	watch, err := client.Get(url + "/hang")
	if err != nil {
		t.Fatal(err)
	}
	ill[0].Store(true)
	if _, err := io.ReadAll(watch.Body); err == nil {
		t.Error("a watch on a server that is not ready ended in order")
	}
	watch.Body.Close()
	answers("1")
	ill[1].Store(true)
	answers("2")
	// Without any that is ready, one still says what is wrong.
	ill[2].Store(true)
	eventually(t, "none is ready", func() error {
		if g.IsReady(2) {
			return errors.New("one is")
		}
		return nil
	})
	response, err := client.Get(url + "/readyz")
	if err != nil || response.StatusCode != http.StatusInternalServerError {
		t.Errorf("with none ready the answer is %v, %v", response, err)
	}
	if err == nil {
		response.Body.Close()
	}
	ill[0].Store(false)
	answers("0")
}

func TestGateWithNobodyBehind(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := New([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(ctx, []net.Listener{l})
	}()
	_, err = (&http.Client{Timeout: time.Minute}).Get("http://" + l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset") {
		t.Errorf("a client gets %v", err)
	}
	cancel()
	<-done
}
