package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func load(t *testing.T, dir string, now time.Time, names ...string) *Bundle {
	t.Helper()
	b, err := LoadOrCreate(dir, options(now, names...))
	if err != nil {
		t.Fatalf("LoadOrCreate: %v", err)
	}
	return b
}

func options(now time.Time, names ...string) Options {
	return Options{
		Clock:       clocktesting.NewFakePassiveClock(now),
		ServerIPs:   []net.IP{net.ParseIP("10.96.0.1"), net.ParseIP("127.0.0.1")},
		ServerNames: names,
	}
}

func servingCertificate(t *testing.T, b *Bundle) *x509.Certificate {
	t.Helper()
	certFile, keyFile := b.ServingFiles()
	chain, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatalf("load the serving pair: %v", err)
	}
	if len(chain.Certificate) != 2 {
		t.Fatalf("the serving file holds %d certificates, want leaf and CA", len(chain.Certificate))
	}
	cert, err := x509.ParseCertificate(chain.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestEveryCertificateVerifiesForItsUseOnly(t *testing.T) {
	b := load(t, t.TempDir(), start, "api.example.com")
	serving := servingCertificate(t, b)
	cases := []struct {
		name  string
		cert  *x509.Certificate
		dns   string
		usage x509.ExtKeyUsage
		ok    bool
	}{
		{"server under an extra name", serving, "api.example.com", x509.ExtKeyUsageServerAuth, true},
		{"server under the service's name", serving, "kubernetes.default.svc", x509.ExtKeyUsageServerAuth, true},
		{"server under the service's address", serving, "10.96.0.1", x509.ExtKeyUsageServerAuth, true},
		{"server under IPv6 loopback", serving, "::1", x509.ExtKeyUsageServerAuth, true},
		{"server under a stranger's name", serving, "evil.example.com", x509.ExtKeyUsageServerAuth, false},
		{"server as a client", serving, "", x509.ExtKeyUsageClientAuth, false},
		{"admin as a client", b.state.Load().leaves[adminName].cert, "", x509.ExtKeyUsageClientAuth, true},
		{"admin as a server", b.state.Load().leaves[adminName].cert, "", x509.ExtKeyUsageServerAuth, false},
		{"agent's client", b.state.Load().leaves[kubeletClientName].cert, "", x509.ExtKeyUsageClientAuth, true},
	}
	for _, c := range cases {
		_, err := c.cert.Verify(x509.VerifyOptions{
			Roots: b.CAPool(), CurrentTime: start, DNSName: c.dns, KeyUsages: []x509.ExtKeyUsage{c.usage},
		})
		if (err == nil) != c.ok {
			t.Errorf("%s: Verify = %v, want success %v", c.name, err, c.ok)
		}
	}
}

func TestRestartKeepsTheIdentity(t *testing.T) {
	dir := t.TempDir()
	first := load(t, dir, start)
	second := load(t, dir, start.Add(24*time.Hour))
	if first.CAHash() != second.CAHash() {
		t.Errorf("the CA changed at a restart: %s, then %s", first.CAHash(), second.CAHash())
	}
	if !servingCertificate(t, first).Equal(servingCertificate(t, second)) {
		t.Error("the serving certificate changed at a restart without need")
	}
	if !first.ServiceAccountKey().Equal(second.ServiceAccountKey()) {
		t.Error("the service account key changed at a restart")
	}
	hash, err := ReadCAHash(dir)
	if err != nil || hash != first.CAHash() || len(hash) != 64 || hash != strings.ToLower(hash) {
		t.Errorf("ReadCAHash = %q, %v; want %q", hash, err, first.CAHash())
	}
}

func TestServingCertificateIsRenewed(t *testing.T) {
	cases := []struct {
		name  string
		after time.Duration
		names []string
		renew bool
	}{
		{"young, same names", 100 * 24 * time.Hour, nil, false},
		{"less than 90 days left", 280 * 24 * time.Hour, nil, true},
		{"expired", 400 * 24 * time.Hour, nil, true},
		{"a new name", time.Hour, []string{"new.example.com"}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			before := servingCertificate(t, load(t, dir, start))
			after := servingCertificate(t, load(t, dir, start.Add(c.after), c.names...))
			if got := !before.Equal(after); got != c.renew {
				t.Errorf("renewed = %v, want %v", got, c.renew)
			}
			if remaining := after.NotAfter.Sub(start.Add(c.after)); remaining < renewBefore {
				t.Errorf("only %s remain", remaining)
			}
		})
	}
}

func TestRenewReachesTheTLSConfiguration(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	b, err := LoadOrCreate(t.TempDir(), Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	config := b.NodeClientTLS()
	clock.SetTime(start.Add(300 * 24 * time.Hour))
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	shown, err := config.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if left := shown.Leaf.NotAfter.Sub(clock.Now()); left < 300*24*time.Hour {
		t.Errorf("after Renew the shown certificate is valid for another %s only", left)
	}
}

func TestBrokenFilesAreReportedAndKept(t *testing.T) {
	other := t.TempDir()
	load(t, other, start)
	copyOf := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	cases := []struct {
		name, file string
		content    []byte // nil removes the file
		now        time.Time
		report     string // the file named in the error
		says       string
	}{
		{"CA certificate is garbage", "ca.crt", []byte("garbage"), start, "ca.crt", "holds no PEM block"},
		{"CA certificate is empty", "ca.crt", []byte{}, start, "ca.crt", "holds no PEM block"},
		{"CA certificate is gone", "ca.crt", nil, start, "ca.crt", "is missing, while"},
		{"CA key is gone", "ca.key", nil, start, "ca.key", "is missing, while the CA's certificate exists"},
		{"CA key is a certificate", "ca.key", copyOf("ca.crt"), start, "ca.key", `expected "PRIVATE KEY"`},
		{"CA key of another cluster", "ca.key", copyOf("ca.key"), start, "ca.crt", "does not belong to the key"},
		{"CA certificate is a leaf", "ca.crt", copyOf("admin.crt"), start, "ca.crt", "not the certificate of an authority"},
		{"CA has expired", "", nil, start.Add(11 * 365 * 24 * time.Hour), "ca.crt", "has expired on 2036-"},
		{"clock far behind", "", nil, start.Add(-48 * time.Hour), "ca.crt", "clock"},
		{"serving key is cut", "apiserver.key", copyOf("apiserver.key")[:60], start, "apiserver.key", "holds no PEM block"},
		{"serving key is gone", "apiserver.key", nil, start, "apiserver.key", "is missing, while apiserver.crt exists"},
		{"admin certificate of another cluster", "admin.crt", copyOf("admin.crt"), start, "admin.crt", "does not belong to the key"},
		{"certificate of another CA", "admin", nil, start, "admin.crt", "was not issued by the CA in this directory"},
		{"nodes' CA key of another cluster", "node-ca.key", copyOf("node-ca.key"), start, "node-ca.crt", "does not belong to the key"},
		{"service account key is garbage", "service-account.key", []byte("x"), start, "service-account.key", "holds no PEM block"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			load(t, dir, start)
			if c.file == "admin" { // a pair that fits, of another cluster
				damage(t, filepath.Join(dir, "admin.key"), "admin.key", copyOf("admin.key"))
				c.file, c.content = "admin.crt", copyOf("admin.crt")
			}
			damage(t, filepath.Join(dir, c.file), c.file, c.content)
			before := contents(t, dir)

			_, err := LoadOrCreate(dir, options(c.now))
			var fileErr *keyfile.Error
			if !errors.As(err, &fileErr) {
				t.Fatalf("error = %v, want a keyfile.Error", err)
			}
			if filepath.Base(fileErr.Path) != c.report || !strings.Contains(err.Error(), c.says) || fileErr.Remedy == "" {
				t.Errorf("error = %q, want one about %s that says %q", err, c.report, c.says)
			}
			for name, data := range contents(t, dir) {
				if before[name] != data {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

func damage(t *testing.T, path, file string, content []byte) {
	t.Helper()
	if file == "" {
		return
	}
	var err error
	if content == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = string(data)
	}
	return all
}

// A crash may fall between any two files of the first start; each prefix of
// them must be completed, with what is there kept.
func TestFirstStartCanBeInterruptedAnywhere(t *testing.T) {
	full := t.TempDir()
	load(t, full, start)
	order := []string{
		"ca.key", "ca.crt", "apiserver.key", "apiserver.crt", "admin.key", "admin.crt",
		"apiserver-kubelet-client.key", "apiserver-kubelet-client.crt", "service-account.key", "node-ca.key", "node-ca.crt",
		"front-proxy-ca.key", "front-proxy-ca.crt", "front-proxy-client.key", "front-proxy-client.crt",
	}
	files := contents(t, full)
	if len(files) != len(order) {
		t.Fatalf("the directory holds %d files, want %d", len(files), len(order))
	}
	for n := range order {
		dir := t.TempDir()
		for _, name := range order[:n] {
			damage(t, filepath.Join(dir, name), name, []byte(files[name]))
		}
		load(t, dir, start)
		after := contents(t, dir)
		for _, name := range order[:n] {
			if after[name] != files[name] {
				t.Errorf("interrupted before %s: %s was replaced", order[n], name)
			}
		}
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	b := load(t, dir, start)
	if err := b.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), "https://127.0.0.1:6443"); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", entry.Name(), info.Mode().Perm())
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v, want mode 700", info.Mode(), err)
	}
}

func TestKubeconfigIsComplete(t *testing.T) {
	b := load(t, t.TempDir(), start)
	data, err := b.AdminKubeconfig("https://127.0.0.1:6443")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" || string(config.CAData) != string(b.CAPEM()) {
		t.Errorf("host %q or CA is wrong", config.Host)
	}
	if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		t.Errorf("client pair: %v", err)
	}
}

func TestSignerCutsAtTheAuthoritysEnd(t *testing.T) {
	b := load(t, t.TempDir(), start)
	ca := b.state.Load().cluster.cert
	signer := b.Signer()
	signer.clock = clocktesting.NewFakePassiveClock(ca.NotAfter.Add(-time.Hour))
	key, err := keyfile.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := signer.issue(&key.PublicKey, clientTemplate("u", nil, 24*time.Hour))
	if err != nil || !cert.NotAfter.Equal(ca.NotAfter) {
		t.Errorf("NotAfter = %v, %v; want the CA's %v", cert.NotAfter, err, ca.NotAfter)
	}
	if _, err := signer.issue(&key.PublicKey, clientTemplate("u", nil, -time.Minute)); err == nil {
		t.Error("a lifetime in the past was accepted")
	}
}

// A key that others can read is no secret any more.
func TestReadableKeysAreRefused(t *testing.T) {
	for _, name := range []string{"ca", "node-ca", "apiserver", "admin", "apiserver-kubelet-client", "service-account", "front-proxy-ca", "front-proxy-client"} {
		for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o601} {
			dir := t.TempDir()
			load(t, dir, start)
			path := filepath.Join(dir, name+".key")
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			_, err := LoadOrCreate(dir, options(start))
			var fileErr *keyfile.Error
			if !errors.As(err, &fileErr) || fileErr.Path != path || !strings.Contains(err.Error(), "chmod 600 "+path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s with mode %o: %v", name, mode, err)
			}
		}
	}
}

// A directory of before there was a CA for nodes gets one, and nothing else changes
// but what the API server shows to agents: that was an administrator's certificate.
func TestOlderDirectoryGetsTheNodesAuthority(t *testing.T) {
	dir := t.TempDir()
	old := load(t, dir, start)
	for _, name := range []string{"node-ca.crt", "node-ca.key"} {
		damage(t, filepath.Join(dir, name), name, nil)
	}
	key := old.state.Load().leaves[kubeletClientName].key
	cert, err := old.Signer().issue(&key.PublicKey, clientTemplate(KubeletClientUser, []string{MastersGroup}, leafLifetime))
	if err != nil {
		t.Fatal(err)
	}
	damage(t, filepath.Join(dir, "apiserver-kubelet-client.crt"), "x", keyfile.CertificatePEM(cert))
	before := contents(t, dir)

	b := load(t, dir, start.Add(time.Hour))
	for name, data := range contents(t, dir) {
		if was, ok := before[name]; ok && (was == data) == (name == "apiserver-kubelet-client.crt") {
			t.Errorf("%s: changed %v", name, was != data)
		}
	}
	if groups := b.state.Load().leaves[kubeletClientName].cert.Subject.Organization; len(groups) != 0 {
		t.Errorf("the API server shows agents a certificate of the groups %v", groups)
	}
}

func TestOnlyTheNodesOwnCertificateIsTaken(t *testing.T) {
	dir := t.TempDir()
	load(t, dir, start)
	key, err := keyfile.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	serving := func(signer *Signer, at time.Time, user, dns string, use x509.ExtKeyUsage) *x509.Certificate {
		signer.clock = clocktesting.NewFakePassiveClock(at)
		cert, err := signer.issue(&key.PublicKey, Template{CommonName: user, Organizations: []string{"system:nodes"}, DNSNames: []string{dns},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use}, TTL: leafLifetime})
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	// The cluster is an hour older than its nodes' CA.
	earlier := t.TempDir()
	for _, name := range []string{"ca.crt", "ca.key"} {
		damage(t, filepath.Join(earlier, name), name, []byte(contents(t, dir)[name]))
	}
	upgraded := load(t, earlier, start.Add(time.Hour))
	const server = x509.ExtKeyUsageServerAuth
	for _, c := range []struct {
		name string
		cert *x509.Certificate
		ok   bool
	}{
		{"the node's own", serving(upgraded.NodeSigner(), start.Add(time.Hour), "system:node:n1", "n1", server), true},
		{"another node's", serving(upgraded.NodeSigner(), start.Add(time.Hour), "system:node:n2", "n2", server), false},
		{"another node's with the name", serving(upgraded.NodeSigner(), start.Add(time.Hour), "system:node:n2", "n1", server), false},
		{"the node's for another name", serving(upgraded.NodeSigner(), start.Add(time.Hour), "system:node:n1", "kubernetes", server), false},
		{"a client's", serving(upgraded.NodeSigner(), start.Add(time.Hour), "system:node:n1", "n1", x509.ExtKeyUsageClientAuth), false},
		{"the cluster CA's of before", serving(upgraded.Signer(), start.Add(time.Minute), "system:node:n1", "n1", server), true},
		{"the cluster CA's of before, another node's", serving(upgraded.Signer(), start.Add(time.Minute), "system:node:n2", "n1", server), false},
		{"the cluster CA's of later", serving(upgraded.Signer(), start.Add(time.Hour), "system:node:n1", "n1", server), false},
		{"another cluster's", serving(load(t, t.TempDir(), start).NodeSigner(), start, "system:node:n1", "n1", server), false},
	} {
		err := verifyNode(upgraded.state.Load(), []*x509.Certificate{c.cert}, "n1", start.Add(2*time.Hour))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v, want it taken: %v", c.name, err, c.ok)
		}
	}
	// Nobody who trusts the cluster's CA takes a node for the API server.
	forged := serving(upgraded.NodeSigner(), start.Add(time.Hour), "system:node:n1", "kubernetes.default.svc", server)
	if _, err := forged.Verify(x509.VerifyOptions{Roots: upgraded.CAPool(), CurrentTime: start.Add(2 * time.Hour)}); err == nil {
		t.Error("who trusts the cluster's CA trusts what the nodes' CA signs")
	}
	if err := verifyNode(upgraded.state.Load(), nil, "n1", start); err == nil {
		t.Error("no certificate was taken")
	}
}
