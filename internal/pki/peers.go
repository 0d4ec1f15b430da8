package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// The databases of several servers speak with each other under an authority of
// their own, in a directory of its own: no certificate of a client or a node, and
// none of the API server, lets anybody take part in what they agree on.
const (
	// PeerAuthority signs what the servers' databases show each other, and nothing else.
	PeerAuthority     = "peer-ca"
	peerAuthorityName = "everynode-peer-ca"
	peerLeaf          = "peer"
)

const peerRemedy = "restore it from a backup, or remove this server with \"everynode members remove\" on another and " +
	"join it again"

// Peers are the key and certificate of one server's database among the others'.
type Peers struct {
	dir string
	// opened are the authorities that were trusted when this was opened.
	opened []*x509.Certificate
}

// OpenPeers reads them, and makes what is missing. The certificate is issued again
// when it ends soon, is not for that host, or is of an authority that was replaced.
func OpenPeers(dir, host string, c clock.PassiveClock) (*Peers, error) {
	if err := os.MkdirAll(dir, keyfile.FolderMode); err != nil {
		return nil, fmt.Errorf("create the directory for the keys of the servers' databases: %w", err)
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, err := loadPeers(dir, c.Now())
	if err == nil && a == nil {
		a, err = createAuthority(dir, PeerAuthority, peerAuthorityName, peerRemedy, c.Now())
	}
	if err != nil {
		return nil, err
	}
	return openPeers(dir, host, a, c)
}

// openPeers issues the certificate if need be. The directory must be locked.
func openPeers(dir, host string, a *authority, c clock.PassiveClock) (*Peers, error) {
	t := Template{
		CommonName: "everynode-peer", KeyUsage: x509.KeyUsageDigitalSignature, TTL: leafLifetime,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		t.IPs = []net.IP{ip}
	} else {
		t.DNSNames = []string{host}
	}
	if _, err := loadOrIssue(dir, a, leaf{peerLeaf, t}, c); err != nil {
		return nil, err
	}
	p := &Peers{dir: dir, opened: a.roots()}
	// etcd reads one file, once.
	trusted := certificatesPEM(p.opened)
	if same(dir, peerTrusted, trusted) {
		return p, nil
	}
	return p, keyfile.Write(filepath.Join(dir, peerTrusted), trusted)
}

// KeepPeers issues the certificate again before it ends, until ctx ends: a server may run
// for longer than a year. Those who use it read the files for each connection.
func KeepPeers(ctx context.Context, dir, host string, c clock.WithTicker) {
	ticker := c.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if _, err := OpenPeers(dir, host, c); err != nil {
			klog.FromContext(ctx).Error(err, "The certificate for the servers' databases cannot be kept")
		}
	}
}

// Files are the paths of what is trusted, the certificate and its key.
func (p *Peers) Files() (ca, cert, key string) {
	return filepath.Join(p.dir, peerTrusted), filepath.Join(p.dir, peerLeaf+".crt"), filepath.Join(p.dir, peerLeaf+".key")
}

// ServerTLS takes connections from peers only. It follows the files.
func (p *Peers) ServerTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool, pair, err := p.load()
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion:   tls.VersionTLS12,
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    pool,
			Certificates: []tls.Certificate{pair},
		}, nil
	}}
}

// ClientTLS is for connections to peers, as the files are now.
func (p *Peers) ClientTLS() (*tls.Config, error) {
	pool, pair, err := p.load()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}

func (p *Peers) load() (*x509.CertPool, tls.Certificate, error) {
	_, cert, key := p.Files()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, pair, fmt.Errorf("read the certificate for the servers' databases: %w", err)
	}
	roots, err := peerRoots(p.dir)
	if err != nil {
		return nil, pair, fmt.Errorf("read the authority of the servers' databases: %w", err)
	}
	pool := x509.NewCertPool()
	for _, c := range roots {
		pool.AddCert(c)
	}
	return pool, pair, nil
}

// sharedFiles are what every server of a cluster has: the authorities and the key of
// service account tokens. Certificates of its own each server issues to itself.
var sharedFiles = []string{
	ClusterAuthority + ".crt", ClusterAuthority + ".key", ClusterAuthority + "-previous.crt",
	NodeAuthority + ".crt", NodeAuthority + ".key", NodeAuthority + "-previous.crt",
	serviceAccountKey, serviceAccountPrevious,
	// API servers of others are told of one authority, by all servers.
	FrontAuthority + ".crt", FrontAuthority + ".key",
}

// AgreedFiles are those of them by which servers know that they have the same keys. What a
// later version shares besides does not belong here: a server of the version before would be
// told that it has others.
var AgreedFiles = []string{
	"ca.crt", "ca.key", "ca-previous.crt", "node-ca.crt", "node-ca.key", "node-ca-previous.crt",
	"service-account.key", "service-account-previous.pub", "front-proxy-ca.crt", "front-proxy-ca.key",
}

// sharedPeerFiles are what the databases of all servers have. They are compared by all of them:
// what a later version shares besides needs an agreement of its own.
var sharedPeerFiles = []string{
	PeerAuthority + ".crt", PeerAuthority + ".key", PeerAuthority + "-previous.crt", peerCross,
}

// SharedKeys are the files that a server gets which joins others, by name.
type SharedKeys struct {
	Cluster map[string][]byte `json:"cluster"`
	Peers   map[string][]byte `json:"peers"`
}

// ExportShared reads them from the directories of a server.
func ExportShared(dir, peersDir string) (keys SharedKeys, err error) {
	keys.Cluster, err = exportFiles(dir, sharedFiles)
	if err == nil {
		keys.Peers, err = exportFiles(peersDir, sharedPeerFiles)
	}
	return keys, err
}

func exportFiles(dir string, names []string) (map[string][]byte, error) {
	unlock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the cluster's keys: %w", err)
		}
		out[name] = data
	}
	return out, nil
}

// ClusterFile reports whether a file of that name is among those that every server has.
func ClusterFile(name string) bool { return slices.Contains(sharedFiles, name) }

// ExportCluster reads the files that every server of a cluster has, by name.
func ExportCluster(dir string) (map[string][]byte, error) { return exportFiles(dir, sharedFiles) }

// ImportCluster writes them.
func ImportCluster(dir string, files map[string][]byte) error {
	return importFiles(dir, sharedFiles, files)
}

// Import writes them, and removes what an attempt before has left of them that is there
// no more: an authority that is not trusted any longer. The directories must hold none
// of another cluster.
func (k SharedKeys) Import(dir, peersDir string) error {
	if err := importFiles(dir, sharedFiles, k.Cluster); err != nil {
		return err
	}
	return importFiles(peersDir, sharedPeerFiles, k.Peers)
}

func importFiles(dir string, names []string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, keyfile.FolderMode); err != nil {
		return fmt.Errorf("create the directory for keys: %w", err)
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	for _, name := range names {
		s := step{remove: name}
		if data, ok := files[name]; ok {
			s = step{write: name, data: data}
		}
		if err := s.apply(dir); err != nil {
			return err
		}
	}
	return nil
}
