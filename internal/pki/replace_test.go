package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

var later = start.Add(24 * time.Hour)

// chainOf is what the API server shows to clients, in order.
func chainOf(t *testing.T, dir string) []*x509.Certificate {
	t.Helper()
	certs, err := keyfile.ReadCertificates(filepath.Join(dir, "apiserver.crt"))
	if err != nil || len(certs) == 0 {
		t.Fatalf("the API server shows %v, %v", certs, err)
	}
	return certs
}

// trusts reports whether a client that trusts one authority accepts a chain.
func trusts(root *x509.Certificate, chain []*x509.Certificate, use x509.ExtKeyUsage) error {
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), CurrentTime: later, KeyUsages: []x509.ExtKeyUsage{use}}
	options.Roots.AddCert(root)
	for _, cert := range chain[1:] {
		options.Intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(options)
	return err
}

// whole checks what must hold of a directory at every moment, for a cluster whose first authority was old.
func whole(t *testing.T, when, dir string, old *x509.Certificate, client *x509.Certificate) *Bundle {
	t.Helper()
	b, err := LoadOrCreate(dir, options(later))
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	chain := chainOf(t, dir)
	for name, root := range map[string]*x509.Certificate{"the old authority": old, "the present authority": b.state.Load().cluster.cert} {
		if err := trusts(root, chain, x509.ExtKeyUsageServerAuth); err != nil {
			t.Errorf("%s: who trusts only %s does not trust the API server: %v", when, name, err)
		}
		pair := b.state.Load().leaves[kubeletClientName]
		if err := trusts(root, append([]*x509.Certificate{pair.cert}, pair.chain...), x509.ExtKeyUsageClientAuth); err != nil {
			t.Errorf("%s: an agent that trusts only %s does not take the API server's call: %v", when, name, err)
		}
	}
	_, err = client.Verify(x509.VerifyOptions{Roots: b.CAPool(), CurrentTime: later, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Errorf("%s: the API server does not trust a certificate of the old authority: %v", when, err)
	}
	if !slices.ContainsFunc(chain, old.Equal) || !slices.ContainsFunc(chain, b.state.Load().cluster.cert.Equal) {
		t.Errorf("%s: a join token finds no authority in the chain", when)
	}
	for _, name := range []string{"ca-next.crt", "ca-next.key", "admin-next.crt", "service-account-next.key"} {
		if exists(dir, name) {
			t.Errorf("%s: %s is left", when, name)
		}
	}
	return b
}

func clientOf(t *testing.T, b *Bundle) *x509.Certificate {
	t.Helper()
	key, err := keyfile.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := b.Signer().issue(&key.PublicKey, clientTemplate("system:node:n1", []string{"system:nodes"}, leafLifetime))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// After a rotation old and new clients, agents and tokens work side by side; after its end only the new ones.
func TestRotationOfTheClusterAuthority(t *testing.T) {
	dir := t.TempDir()
	first := load(t, dir, start)
	old, client, before := first.state.Load().cluster.cert, clientOf(t, first), contents(t, dir)
	if err := Rotate(dir, ClusterAuthority, later); err != nil {
		t.Fatal(err)
	}
	b := whole(t, "after the rotation", dir, old, client)
	if b.CAHash() == HashOf(old) || strings.Count(string(b.CAPEM()), "BEGIN") != 2 {
		t.Error("there is no new authority beside the old one")
	}
	for name, data := range contents(t, dir) {
		if strings.HasSuffix(name, ".key") && (before[name] == data) != (name == "node-ca.key" || strings.HasPrefix(name, "front-proxy-") || name == serviceAccountKey) {
			t.Errorf("%s changed: %v", name, before[name] != data)
		}
	}
	if err := Rotate(dir, ClusterAuthority, later); err == nil || !strings.Contains(err.Error(), "--finish") {
		t.Errorf("a rotation within a rotation: %v", err)
	}
	openssl(t, dir, old)

	if err := Finish(dir, ClusterAuthority, later); err != nil {
		t.Fatal(err)
	}
	b = load(t, dir, later)
	if err := trusts(old, chainOf(t, dir), x509.ExtKeyUsageServerAuth); err == nil {
		t.Error("after the end who trusts the old authority still trusts the API server")
	}
	if err := trusts(b.state.Load().cluster.cert, chainOf(t, dir), x509.ExtKeyUsageServerAuth); err != nil {
		t.Error(err)
	}
	if _, err := client.Verify(x509.VerifyOptions{Roots: b.CAPool(), CurrentTime: later, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("after the end a certificate of the old authority is still trusted")
	}
	if err := Finish(dir, ClusterAuthority, later); err == nil || !strings.Contains(err.Error(), "nothing to finish") {
		t.Errorf("a second end: %v", err)
	}
	if err := Rotate(dir, ClusterAuthority, later); err != nil {
		t.Errorf("the next rotation: %v", err)
	}
}

// openssl looks at the chain as programs that are not written in Go do.
func openssl(t *testing.T, dir string, old *x509.Certificate) {
	t.Helper()
	program, err := exec.LookPath("openssl")
	if err != nil {
		t.Log("there is no openssl")
		return
	}
	root := filepath.Join(t.TempDir(), "old.crt")
	if err := os.WriteFile(root, keyfile.CertificatePEM(old), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, trusted := range []string{root, filepath.Join(dir, "ca.crt")} {
		chain := filepath.Join(dir, "apiserver.crt")
		out, err := exec.Command(program, "verify", "-attime", "1772452800", "-CAfile", trusted, "-untrusted", chain, chain).CombinedOutput()
		if err != nil {
			t.Errorf("openssl with %s: %v: %s", trusted, err, out)
		}
	}
}

// A kill may fall between any two steps. What is left is used, completed or dropped, and shown.
func TestRotationCanBeInterruptedAnywhere(t *testing.T) {
	for _, which := range []string{ClusterAuthority, NodeAuthority, ServiceAccounts} {
		full := t.TempDir()
		first := load(t, full, start)
		old, oldKey, client, files := first.state.Load().cluster.cert, first.ServiceAccountKeys()[0], clientOf(t, first), contents(t, full)
		steps, err := planRotation(first.state.Load(), which, later)
		if err != nil {
			t.Fatal(err)
		}
		for n := range len(steps) + 1 {
			dir := t.TempDir()
			for name, data := range files {
				damage(t, filepath.Join(dir, name), name, []byte(data))
			}
			if err := applyAll(dir, steps[:n]); err != nil {
				t.Fatal(err)
			}
			when := which + " cut off after " + string(rune('0'+n/10)) + string(rune('0'+n%10)) + " steps"
			items, err := Inspect(dir)
			if err != nil {
				t.Errorf("%s: %v", when, err)
			}
			half := slices.ContainsFunc(items, func(i Item) bool { return strings.Contains(i.State, "interrupted") })
			left, _ := filepath.Glob(filepath.Join(dir, "*-next.*"))
			if half != (len(left) > 0) {
				t.Errorf("%s: the list shows it: %v, left is %v", when, half, left)
			}
			b := whole(t, when, dir, old, client)
			if !slices.ContainsFunc(b.ServiceAccountKeys(), func(key *ecdsa.PublicKey) bool { return key.Equal(oldKey) }) {
				t.Errorf("%s: tokens of before are void", when)
			}
			if err := Rotate(dir, which, later); err != nil && !strings.Contains(err.Error(), "being replaced already") {
				t.Errorf("%s: the command again: %v", when, err)
			}
			whole(t, when+", and the command again", dir, old, client)
			if err := Finish(dir, which, later); err != nil {
				t.Errorf("%s: the end: %v", when, err)
			}
			load(t, dir, later)
		}
	}
}

func TestRotationOfServiceAccountKeys(t *testing.T) {
	dir := t.TempDir()
	b := load(t, dir, start)
	old := b.ServiceAccountKey()
	if err := Rotate(dir, ServiceAccounts, later); err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	keys := b.ServiceAccountKeys()
	if b.ServiceAccountKey().Equal(old) || len(keys) != 2 || !keys[0].Equal(&b.ServiceAccountKey().PublicKey) || !keys[1].Equal(&old.PublicKey) {
		t.Error("the new key does not sign, or the old one does not verify")
	}
	if since, ok, err := Replaced(dir); err != nil || !ok || !since.Equal(later) {
		t.Errorf("replaced at %s, %v, %v", since, ok, err)
	}
	if err := Finish(dir, ServiceAccounts, later); err != nil {
		t.Fatal(err)
	}
	if err := b.Reload(); err != nil || len(b.ServiceAccountKeys()) != 1 {
		t.Errorf("after the end %d keys verify, %v", len(b.ServiceAccountKeys()), err)
	}
}

// A server that runs takes what is replaced, and tells who listens.
func TestReloadFollowsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	b := load(t, dir, later)
	told := 0
	b.OnChange(func() { told++ })
	signer, nodes, serving := b.Signer(), b.NodeSigner(), servingCertificate(t, b)
	before := []*x509.Certificate{signer.Authority(), nodes.Authority()}
	for _, which := range []string{ClusterAuthority, NodeAuthority} {
		look := b.look()
		if err := Rotate(dir, which, later); err != nil {
			t.Fatal(err)
		}
		if !b.changed(b.look()) || look == b.look() {
			t.Errorf("the replacement of %s is not noticed", which)
		}
		if err := b.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if told != 2 || signer.Authority().Equal(before[0]) || nodes.Authority().Equal(before[1]) {
		t.Errorf("told %d times; signers follow: %v, %v", told, !signer.Authority().Equal(before[0]), !nodes.Authority().Equal(before[1]))
	}
	if err := b.Reload(); err != nil || told != 2 {
		t.Errorf("told %d times, %v, without a change", told, err)
	}
	if chainOf(t, dir)[0].Equal(serving) || b.changed(b.look()) {
		t.Error("the serving certificate is the old one, or the server changes files again and again")
	}
}

func TestRenew(t *testing.T) {
	dir := t.TempDir()
	b := load(t, dir, start, "api.example.com")
	if err := b.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), "https://10.0.0.1:6443"); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	if err := Renew(dir, []string{"nothing"}, later); err == nil || !strings.Contains(err.Error(), "apiserver, admin") {
		t.Errorf("an unknown certificate: %v", err)
	}
	if err := Renew(dir, []string{"admin"}, later); err != nil {
		t.Fatal(err)
	}
	for name, data := range contents(t, dir) {
		if (before[name] != data) != strings.HasPrefix(name, "admin.") {
			t.Errorf("%s changed: %v", name, before[name] != data)
		}
	}
	if err := Renew(dir, nil, later); err != nil {
		t.Fatal(err)
	}
	if err := chainOf(t, dir)[0].VerifyHostname("api.example.com"); err != nil {
		t.Error(err)
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := RewriteKubeconfig(dir, path, later); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil || config.Host != "https://10.0.0.1:6443" || string(config.CertData)+string(config.KeyData) == "" {
		t.Fatalf("kubeconfig for %v, %v", config, err)
	}
	if now := contents(t, dir); now["kubeconfig"] == before["kubeconfig"] || !strings.HasPrefix(now["admin.crt"], string(config.CertData)) {
		t.Error("the kubeconfig does not have the new certificate")
	}
	if err := RewriteKubeconfig(dir, filepath.Join(dir, "none"), later); err != nil {
		t.Errorf("without a kubeconfig: %v", err)
	}
	if err := Rotate(t.TempDir(), ClusterAuthority, later); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a directory without keys: %v", err)
	}
}
