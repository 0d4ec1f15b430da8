package revocation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/pki"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// issued is a certificate of a user.
func issued(user string, at time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: user}, NotBefore: at.Add(-pki.Backdate)}
}

func newList(t *testing.T) *List {
	t.Helper()
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: "https://everynode.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	return New(client)
}

// A server that does not know what is revoked lets no node in, and everybody else.
func TestNodesWaitUntilItIsKnown(t *testing.T) {
	l := newList(t)
	if l.Check(issued("system:node:n1", noon)) == nil {
		t.Error("a node is let in before it is known what is revoked")
	}
	if err := l.Check(issued("kubernetes-admin", noon)); err != nil {
		t.Errorf("the administrator: %v", err)
	}
	close(l.known)
	if err := l.Check(issued("system:node:n1", noon)); err != nil {
		t.Errorf("a node that is not revoked: %v", err)
	}
}

func TestCheck(t *testing.T) {
	l := newList(t)
	close(l.known)
	var told []string
	l.OnRevoke(func(node string) { told = append(told, node) })
	l.add(t.Context(), identity.Revocation{Node: "n1", Before: noon}.Secret())
	broken := identity.Revocation{Node: "n3", Before: noon}.Secret()
	broken.Data = nil
	l.add(t.Context(), broken)
	for _, c := range []struct {
		user    string
		at      time.Time
		refused bool
	}{
		{"system:node:n1", noon.Add(-time.Second), true},
		{"system:node:n1", noon, false},
		{"system:node:n1", noon.Add(time.Hour), false},
		{"system:node:n11", noon.Add(-time.Hour), false},
		{"system:node:n2", noon.Add(-time.Hour), false},
		{"n1", noon.Add(-time.Hour), false},
	} {
		if err := l.Check(issued(c.user, c.at)); (err != nil) != c.refused {
			t.Errorf("%s of %s: %v, want it refused: %v", c.user, c.at, err, c.refused)
		}
	}
	if len(told) != 1 || told[0] != "n1" {
		t.Errorf("told of %v, want n1", told)
	}
	l.remove(identity.Revocation{Node: "n1", Before: noon}.Secret())
	if err := l.Check(issued("system:node:n1", noon.Add(-time.Second))); err != nil {
		t.Errorf("after the revocation was taken back: %v", err)
	}
}

// What the node has under way with a revoked certificate ends; what others have, and what comes with a newer one, goes on.
func TestGuard(t *testing.T) {
	l := newList(t)
	close(l.known)
	started, ended := make(chan string, 3), make(chan string, 3)
	handler := l.Guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		started <- r.URL.Path
		<-r.Context().Done()
		ended <- r.URL.Path
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	send := func(path string, cert *x509.Certificate) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	go send("/old", issued("system:node:n1", noon.Add(-time.Hour)))
	go send("/new", issued("system:node:n1", noon.Add(time.Hour)))
	go send("/other", issued("system:node:n2", noon.Add(-time.Hour)))
	for range 3 {
		<-started
	}
	l.add(t.Context(), identity.Revocation{Node: "n1", Before: noon}.Secret())
	if path := <-ended; path != "/old" {
		t.Errorf("%s ended", path)
	}
	select {
	case path := <-ended:
		t.Errorf("%s ended, too", path)
	case <-time.After(50 * time.Millisecond):
	}
	stop()
	<-ended
	<-ended
	if w := send("/again", issued("system:node:n1", noon.Add(-time.Hour))); w.Header().Get("Connection") != "close" {
		t.Error("a revoked node keeps its connection")
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		left := len(l.requests)
		l.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d nodes still have requests under way", left)
		}
	}
}
