package pki

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// Users and groups of the certificates that the server issues to itself.
const (
	AdminUser = "kubernetes-admin"
	// KubeletClientUser is who the API server is to agents. The API itself does not
	// take it for anybody.
	KubeletClientUser = "kube-apiserver-kubelet-client"
	MastersGroup      = "system:masters"
	// FrontProxyUser is who the API server is to API servers of others, which then take
	// its word for who asks.
	FrontProxyUser = "front-proxy-client"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 365 * 24 * time.Hour
	// renewBefore is the remaining lifetime below which a certificate is issued again.
	renewBefore = 90 * 24 * time.Hour

	servingName       = "apiserver"
	adminName         = "admin"
	kubeletClientName = "apiserver-kubelet-client"
	frontClientName   = "front-proxy-client"
)

// Options says what the certificates must hold. The zero value serves loopback only.
type Options struct {
	// Clock tells the time; the real clock by default.
	Clock clock.PassiveClock
	// ServerIPs and ServerNames are the addresses that clients use for the API
	// server (listen addresses, the ClusterIP of the service kubernetes, ...).
	// Loopback, the machine-local name localhost, and the names of the service
	// kubernetes are always included.
	ServerIPs   []net.IP
	ServerNames []string
}

// Bundle is the cluster's key material, as it is now: it follows what is replaced
// in the directory (Run). Its methods may be called from several goroutines.
type Bundle struct {
	dir   string
	opts  Options
	state atomic.Pointer[state]

	// mu is held while the directory is read and while listeners change.
	mu        sync.Mutex
	seen      string // what the directory looked like then
	listeners []func()
}

// state is what was in the directory at one moment.
type state struct {
	cluster, nodes, front *authority
	leaves                map[string]*pair
	accounts              *accountKeys
}

// LoadOrCreate reads the key material in dir and creates what is missing. It
// issues leaf certificates again that end soon, whose names have changed or whose
// authority was replaced. A file that cannot be used gives a *keyfile.Error and stays
// as it is.
func LoadOrCreate(dir string, opts Options) (*Bundle, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if err := os.MkdirAll(dir, keyfile.FolderMode); err != nil {
		return nil, fmt.Errorf("create the directory for keys: %w", err)
	}
	b := &Bundle{dir: dir, opts: opts}
	return b, b.Reload()
}

// load reads everything. The directory must be locked.
func (b *Bundle) load() (*state, error) {
	now := b.opts.Clock.Now()
	err := settle(b.dir)
	if err != nil {
		return nil, err
	}
	s := &state{leaves: map[string]*pair{}}
	s.cluster, err = loadOrCreateCluster(b.dir, now)
	if err != nil {
		return nil, err
	}
	for _, l := range leafTemplates(b.opts) {
		s.leaves[l.name], err = loadOrIssue(b.dir, s.cluster, l, b.opts.Clock)
		if err != nil {
			return nil, err
		}
	}
	s.accounts, err = loadOrCreateAccounts(b.dir)
	if err != nil {
		return nil, err
	}
	s.nodes, err = loadOrCreateNodes(b.dir, now)
	if err != nil {
		return nil, err
	}
	s.front, s.leaves[frontClientName], err = loadOrCreateFront(b.dir, b.opts.Clock)
	return s, err
}

// Signer issues certificates of the cluster's CA.
func (b *Bundle) Signer() *Signer {
	return &Signer{authority: func() *authority { return b.state.Load().cluster }, clock: b.opts.Clock}
}

// NodeSigner issues the serving certificates of nodes.
func (b *Bundle) NodeSigner() *Signer {
	return &Signer{authority: func() *authority { return b.state.Load().nodes }, clock: b.opts.Clock}
}

// CAPEM holds the certificates of the trusted CAs, PEM encoded, the one that signs first.
func (b *Bundle) CAPEM() []byte { return certificatesPEM(b.state.Load().cluster.roots()) }

// NodeCAPEM holds those of the nodes' CAs.
func (b *Bundle) NodeCAPEM() []byte { return certificatesPEM(b.state.Load().nodes.roots()) }

// FrontProxyCAPEM is the CA by which API servers of others know this one.
func (b *Bundle) FrontProxyCAPEM() []byte { return certificatesPEM(b.state.Load().front.roots()) }

// FrontProxyFiles are the paths of what is shown to API servers of others, and its key.
func (b *Bundle) FrontProxyFiles() (certFile, keyFile string) {
	return filepath.Join(b.dir, frontClientName+".crt"), filepath.Join(b.dir, frontClientName+".key")
}

// CAHash is the lowercase hex SHA-256 of the CA certificate's DER form: what a
// joining node compares before it trusts the server.
func (b *Bundle) CAHash() string { return HashOf(b.state.Load().cluster.cert) }

// CAFile is the path of the CA's certificate.
func (b *Bundle) CAFile() string { return filepath.Join(b.dir, ClusterAuthority+".crt") }

// ServingFiles are the paths of the API server's certificate (leaf, then CA) and key.
func (b *Bundle) ServingFiles() (certFile, keyFile string) {
	return filepath.Join(b.dir, servingName+".crt"), filepath.Join(b.dir, servingName+".key")
}

// ServingNames are the names and addresses that the API server's certificate is for.
func (b *Bundle) ServingNames() (names []string, ips []net.IP) {
	cert := b.state.Load().leaves[servingName].cert
	return cert.DNSNames, cert.IPAddresses
}

// ServiceAccountKey signs service account tokens.
func (b *Bundle) ServiceAccountKey() *ecdsa.PrivateKey { return b.state.Load().accounts.signing }

// ServiceAccountKeys verify service account tokens, the one that signs first.
func (b *Bundle) ServiceAccountKeys() []*ecdsa.PublicKey {
	keys := b.state.Load().accounts
	out := []*ecdsa.PublicKey{&keys.signing.PublicKey}
	for _, previous := range keys.previous {
		out = append(out, previous.public)
	}
	return out
}

// CAPool holds the trusted CAs of the cluster.
func (b *Bundle) CAPool() *x509.CertPool { return b.state.Load().cluster.pool() }

// HashOf is the lowercase hex SHA-256 of a certificate's DER form.
func HashOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// ReadCAHash reads the CA's hash from a directory that LoadOrCreate has filled.
func ReadCAHash(dir string) (string, error) { return AuthorityHash(dir, ClusterAuthority) }
