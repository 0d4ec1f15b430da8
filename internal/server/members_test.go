package server_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv/freeport"
)

// memberVariable has this program be one member of an etcd cluster.
const memberVariable = "EVERYNODE_TEST_ETCD_MEMBER"

// member is one etcd server in a process of its own, which speaks TLS with everybody.
type member struct {
	Name, Dir, Cluster string
	Client, Peer       string // URLs
	CA, Cert, Key      string // files
	process            *exec.Cmd
}

func runMember(text string) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	client, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster, cfg.UnsafeNoFsync = m.Name, m.Dir, m.Cluster, true
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	info := transport.TLSInfo{CertFile: m.Cert, KeyFile: m.Key, TrustedCAFile: m.CA, ClientCertAuth: true}
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = info, info
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	return <-e.Err()
}

// members are an etcd cluster with TLS.
type members struct {
	t   *testing.T
	all []*member
	ca  *authority
	// caFile, certFile and keyFile are what a client needs.
	caFile, certFile, keyFile string
}

func startMembers(t *testing.T, n int) *members {
	t.Helper()
	dir := t.TempDir()
	c := &members{t: t, ca: newAuthority(t)}
	c.caFile = filepath.Join(dir, "ca.crt")
	writePEM(t, c.caFile, "CERTIFICATE", c.ca.cert.Raw)
	c.certFile, c.keyFile = c.ca.issue(t, dir, "client")
	var cluster []string
	for i := range n {
		m := &member{Name: fmt.Sprintf("m%d", i), CA: c.caFile}
		m.Dir = filepath.Join(dir, m.Name)
		m.Client, m.Peer = freeURL(t), freeURL(t)
		m.Cert, m.Key = c.ca.issue(t, dir, m.Name)
		cluster = append(cluster, m.Name+"="+m.Peer)
		c.all = append(c.all, m)
	}
	for _, m := range c.all {
		m.Cluster = strings.Join(cluster, ",")
		c.start(m)
	}
	t.Cleanup(func() {
		for _, m := range c.all {
			m.kill()
		}
	})
	c.healthy()
	return c
}

func freeURL(t *testing.T) string {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("https://127.0.0.1:%d", port)
}

func (c *members) start(m *member) {
	c.t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	m.process = exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // It is this program.
	m.process.Env, m.process.Stderr = append(os.Environ(), memberVariable+"="+string(text)), os.Stderr
	m.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.process.Start(); err != nil {
		c.t.Fatal(err)
	}
}

// kill ends it as the kernel does.
func (m *member) kill() {
	if m.process == nil {
		return
	}
	_ = m.process.Process.Kill()
	_ = m.process.Wait()
	m.process = nil
}

// client reaches the members.
func (c *members) client() *clientv3.Client {
	c.t.Helper()
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.ca.cert)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.urls(), Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// healthy waits until the members take writes.
func (c *members) healthy() {
	c.t.Helper()
	client := c.client()
	for deadline := time.Now().Add(time.Minute); ; {
		ctx, cancel := contextOf(c.t, 2*time.Second)
		_, err := client.Get(ctx, "any")
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the members do not work: %v", err)
		}
	}
}

func (c *members) urls() (out []string) {
	for _, m := range c.all {
		out = append(out, m.Client)
	}
	return out
}

// leader is the member that leads.
func (c *members) leader() *member {
	c.t.Helper()
	client := c.client()
	for _, m := range c.all {
		ctx, cancel := contextOf(c.t, 5*time.Second)
		status, err := client.Status(ctx, m.Client)
		cancel()
		if err == nil && status.Leader == status.Header.MemberId {
			return m
		}
	}
	c.t.Fatal("nobody leads")
	return nil
}

// use is an option of a server that keeps its objects there.
func (c *members) use(o *config.Options) {
	transport := &o.API.Etcd.StorageConfig.Transport
	transport.ServerList, transport.TrustedCAFile, transport.CertFile, transport.KeyFile = c.urls(), c.caFile, c.certFile, c.keyFile
}

// authority issues certificates for 127.0.0.1.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd-ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) issue(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", encoded)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
