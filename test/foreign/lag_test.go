package foreign

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// slow stands between a replica and the API server. What watches bring comes late by so much; all else at once.
type slow struct {
	server *httptest.Server
	by     atomic.Int64
}

func newSlow(t *testing.T, c *cluster) *slow {
	t.Helper()
	at, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(c.config))
	if err != nil {
		t.Fatal(err)
	}
	s := &slow{}
	s.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) },
		ModifyResponse: func(r *http.Response) error {
			if slices.Contains([]string{"1", "true"}, r.Request.URL.Query().Get("watch")) {
				r.Body = later(r.Body, func() time.Duration { return time.Duration(s.by.Load()) })
			}
			return nil
		},
	})
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	t.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// kubeconfig is one with a token that leads here.
func (s *slow) kubeconfig(t *testing.T, c *cluster, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["slow"] = &clientcmdapi.Cluster{Server: s.server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})}
	config.AuthInfos["slow"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["slow"] = &clientcmdapi.Context{Cluster: "slow", AuthInfo: "slow"}
	config.CurrentContext = "slow"
	path := filepath.Join(c.dir, "slow.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// late is a body of which each part comes later than it came.
type late struct {
	io.Closer
	parts  chan part
	rest   []byte
	by     func() time.Duration
	closed chan struct{}
}

type part struct {
	at  time.Time
	raw []byte
	err error
}

func later(body io.ReadCloser, by func() time.Duration) io.ReadCloser {
	l := &late{Closer: body, parts: make(chan part, 1<<16), by: by, closed: make(chan struct{})}
	go func() {
		for {
			raw := make([]byte, 32<<10)
			n, err := body.Read(raw)
			select {
			case l.parts <- part{time.Now(), raw[:n], err}:
			case <-l.closed:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return l
}

// Read implements io.Reader.
func (l *late) Read(into []byte) (int, error) {
	for len(l.rest) == 0 {
		select {
		case p := <-l.parts:
			select {
			case <-time.After(time.Until(p.at.Add(l.by()))):
			case <-l.closed:
				return 0, io.ErrClosedPipe
			}
			if p.err != nil && len(p.raw) == 0 {
				return 0, p.err
			}
			l.rest = p.raw
		case <-l.closed:
			return 0, io.ErrClosedPipe
		}
	}
	n := copy(into, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (l *late) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return l.Closer.Close()
}
