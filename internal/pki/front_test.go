package pki

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
)

// TestFrontProxy is the certificate for API servers of others: of an authority of its
// own, which is made again when somebody takes its files away.
func TestFrontProxy(t *testing.T) {
	dir := t.TempDir()
	b := load(t, dir, start)
	shown := b.state.Load().leaves[frontClientName].cert
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.FrontProxyCAPEM())
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := shown.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: usages, CurrentTime: start}); err != nil || shown.Subject.CommonName != FrontProxyUser {
		t.Errorf("%s: %v", shown.Subject, err)
	}
	for name, pool := range map[string]*x509.CertPool{"the cluster": b.CAPool(), "the nodes": b.state.Load().nodes.pool()} {
		if _, err := shown.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: usages, CurrentTime: start}); err == nil {
			t.Errorf("the authority of %s trusts it", name)
		}
	}
	before, changed := b.FrontProxyCAPEM(), false
	b.OnChange(func() { changed = true })
	for _, name := range []string{"front-proxy-ca.crt", "front-proxy-ca.key", "front-proxy-client.crt", "front-proxy-client.key"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Reload(); err != nil || !changed || bytes.Equal(before, b.FrontProxyCAPEM()) {
		t.Errorf("there is no new authority: %v, told: %v", err, changed)
	}
	if renewed := b.state.Load().leaves[frontClientName].cert; renewed.CheckSignatureFrom(b.state.Load().front.cert) != nil || renewed.Equal(shown) {
		t.Error("the certificate is not of the new authority")
	}
}
