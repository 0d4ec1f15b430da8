package stolen

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/storages"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// patience is how long to wait for what must happen; only a failure ever takes it.
const patience = 2 * time.Minute

// yard is the API server with what is stored in it, and who calls it.
type yard struct {
	url     string
	admin   kubernetes.Interface
	bundle  *pki.Bundle
	thieves map[string]*thief
	// uids are those of objects, by "KIND/NAME".
	uids map[string]string
}

// thief is somebody with a credential.
type thief struct {
	client *http.Client
	token  string
}

// newYard starts the server until the test ends, and fills it.
func newYard(t *testing.T) *yard {
	t.Helper()
	dir := t.TempDir()
	bundle, err := pki.LoadOrCreate(filepath.Join(dir, "pki"), pki.Options{ServerIPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	t.Cleanup(func() { cancel(); ended.Wait() })
	database, err := etcd.Start(ctx, etcd.Options{Dir: filepath.Join(dir, "etcd"), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	_, services, _ := net.ParseCIDR("10.96.0.0/16")
	server, err := apiserver.New(apiserver.Config{
		PKI: bundle, Listener: listener, AdvertiseAddress: net.IPv4(127, 0, 0, 1), AdvertisePort: 6443,
		OpenStorage: database.Open, OpenHot: storages.Hot(database.OpenHot), OpenReserving: database.OpenReserving, ServiceCIDR: services,
		Stored: database.Stored(), KeyFile: filepath.Join(dir, "encryption.yaml"),
	})
	if err != nil {
		database.Close()
		t.Fatal(err)
	}
	ended.Go(func() {
		defer database.Close()
		if err := server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	y := &yard{url: "https://" + listener.Addr().String(), bundle: bundle, uids: map[string]string{}}
	config, err := bundle.AdminConfig(y.url)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.UserAgent = -1, "yard"
	y.admin = kubernetes.NewForConfigOrDie(config)
	y.waitReady(t, config)
	y.fill(t)
	y.thieves = y.steal(t)
	return y
}

func (y *yard) waitReady(t *testing.T, config *restclient.Config) {
	t.Helper()
	client, err := restclient.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is ready", func() error {
		response, err := client.Get(y.url + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", response.Status)
		}
		return nil
	})
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	err := check()
	for ; err != nil && time.Now().Before(deadline); err = check() {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// withCertificate is who has a client certificate with that name and these groups.
func (y *yard) withCertificate(t *testing.T, name string, groups ...string) *thief {
	t.Helper()
	cert, key, err := y.bundle.Signer().NewClient(name, groups, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &thief{client: y.client([]tls.Certificate{pair})}
}

func (y *yard) withToken(token string) *thief {
	return &thief{client: y.client(nil), token: token}
}

func (y *yard) client(certificates []tls.Certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(y.bundle.CAPEM())
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request is one call; path may have a query.
type request struct {
	method, path string
	header       http.Header
	body         []byte
}

// send makes the call and reads the whole answer.
func (y *yard) send(ctx context.Context, who *thief, r request) (code int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	call, err := http.NewRequestWithContext(ctx, r.method, y.url, bytes.NewReader(r.body))
	if err != nil {
		return 0, nil, err
	}
	// As it is written, with double slashes and dots.
	call.URL.Opaque = "//" + call.URL.Host + r.path
	for name, values := range r.header {
		call.Header[name] = values
	}
	if who.token != "" && call.Header.Get("Authorization") == "" {
		call.Header.Set("Authorization", "Bearer "+who.token)
	}
	response, err := who.client.Do(call)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
