package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// The authorities of a cluster, by the names of their files.
const (
	ClusterAuthority = "ca"
	NodeAuthority    = "node-ca"
	// FrontAuthority signs nothing but what the API server shows to API servers of others.
	FrontAuthority = "front-proxy-ca"
)

// Subjects of the first authorities; later ones have a number behind.
const (
	clusterAuthorityName = "everynode-ca"
	nodeAuthorityName    = "everynode-node-ca"
	frontAuthorityName   = "everynode-front-proxy-ca"
)

const authorityRemedy = "restore it from a backup, or remove the whole directory and restart: " +
	"the cluster then gets a new identity and every node must join again"

const nodeAuthorityRemedy = "restore it from a backup, or remove node-ca.crt and node-ca.key and restart: " +
	"nodes then get new serving certificates by themselves"

const frontAuthorityRemedy = "remove front-proxy-ca.crt, front-proxy-ca.key, front-proxy-client.crt and " +
	"front-proxy-client.key: they are then made again"

// authority signs certificates, and knows which others of its kind are trusted.
type authority struct {
	name string // of its files
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// previous are the authorities that were replaced and are still trusted.
	previous []*x509.Certificate
	// crosses are certificates of this authority's own key by previous ones: with them
	// whoever trusts a previous authority trusts what this one signs.
	crosses []*x509.Certificate
}

// roots are the trusted authorities, the one that signs first.
func (a *authority) roots() []*x509.Certificate {
	return append([]*x509.Certificate{a.cert}, a.previous...)
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, root := range a.roots() {
		pool.AddCert(root)
	}
	return pool
}

// chain is what is shown behind a certificate of this authority. The crosses come
// first, as some programs take the first that fits; the roots let a joining
// node find the one whose hash its token holds.
func (a *authority) chain() []*x509.Certificate {
	return slices.Concat(a.crosses, a.previous, []*x509.Certificate{a.cert})
}

// signed reports whether this authority, or one before it, signed a certificate.
func (a *authority) signed(cert *x509.Certificate) error {
	err := cert.CheckSignatureFrom(a.cert)
	for _, previous := range a.previous {
		if err != nil && cert.CheckSignatureFrom(previous) == nil {
			return nil
		}
	}
	return err
}

func certificatesPEM(certs []*x509.Certificate) []byte {
	var out bytes.Buffer
	for _, cert := range certs {
		out.Write(keyfile.CertificatePEM(cert))
	}
	return out.Bytes()
}

// loadAuthority reads an authority; nil when it has no certificate.
func loadAuthority(dir, name, remedy string, now time.Time) (*authority, error) {
	certPath, keyPath := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	cert, err := keyfile.ReadCertificate(certPath)
	if err != nil || cert == nil {
		return nil, keyfile.Because(certPath, err, remedy)
	}
	key, err := keyfile.ReadKey(keyPath)
	if err == nil && key == nil {
		err = errors.New("is missing, while the CA's certificate exists")
	}
	if err != nil {
		return nil, keyfile.Because(keyPath, err, remedy)
	}
	if err := checkAuthority(cert, key, now); err != nil {
		return nil, keyfile.Because(certPath, err, remedy)
	}
	a := &authority{name: name, cert: cert, key: key}
	previousPath := previousFile(dir, name)
	others, err := keyfile.ReadCertificates(previousPath)
	if err != nil {
		return nil, keyfile.Because(
			previousPath, err, "restore it from a backup, or remove it: who trusts only the old CA must then join again",
		)
	}
	for _, other := range others {
		switch {
		case other.Equal(cert):
		case other.CheckSignatureFrom(other) == nil:
			a.previous = append(a.previous, other)
		case key.PublicKey.Equal(other.PublicKey):
			a.crosses = append(a.crosses, other)
		}
	}
	if len(others) > 0 && len(a.previous) == 0 {
		// The rotation that wrote it was interrupted before it began.
		return a, step{remove: previousFile("", name)}.apply(dir)
	}
	return a, nil
}

func previousFile(dir, name string) string { return filepath.Join(dir, name+"-previous.crt") }

// loadOrCreateCluster gives the cluster's CA. Its key without its certificate is
// what a crash during the very first start leaves behind, and is completed; in a
// directory that already holds certificates it means loss, and is reported.
func loadOrCreateCluster(dir string, now time.Time) (*authority, error) {
	a, err := loadAuthority(dir, ClusterAuthority, authorityRemedy, now)
	if a != nil || err != nil {
		return a, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look into the directory for keys: %w", err)
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".crt" {
			return nil, &keyfile.Error{
				Path:   filepath.Join(dir, ClusterAuthority+".crt"),
				Err:    fmt.Errorf("is missing, while %s exists", entry.Name()),
				Remedy: authorityRemedy,
			}
		}
	}
	return createAuthority(dir, ClusterAuthority, clusterAuthorityName, authorityRemedy, now)
}

// loadOrCreateNodes gives the nodes' CA. Directories of before there was one get it.
func loadOrCreateNodes(dir string, now time.Time) (*authority, error) {
	a, err := loadAuthority(dir, NodeAuthority, nodeAuthorityRemedy, now)
	if a != nil || err != nil {
		return a, err
	}
	return createAuthority(dir, NodeAuthority, nodeAuthorityName, nodeAuthorityRemedy, now)
}

// loadOrCreateFront gives the authority for calls to API servers of others, and the
// certificate that is shown to them. Who takes its files away gets new ones.
func loadOrCreateFront(dir string, c clock.PassiveClock) (*authority, *pair, error) {
	a, err := loadAuthority(dir, FrontAuthority, frontAuthorityRemedy, c.Now())
	if a == nil && err == nil {
		a, err = createAuthority(dir, FrontAuthority, frontAuthorityName, frontAuthorityRemedy, c.Now())
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := loadOrIssue(dir, a, leaf{frontClientName, clientTemplate(FrontProxyUser, nil, leafLifetime)}, c)
	return a, p, err
}

func createAuthority(dir, name, commonName, remedy string, now time.Time) (*authority, error) {
	key, err := keyfile.LoadOrCreateKey(filepath.Join(dir, name+".key"), remedy)
	if err != nil {
		return nil, err
	}
	cert, err := newAuthority(key, commonName, now)
	if err != nil {
		return nil, err
	}
	if err := keyfile.Write(filepath.Join(dir, name+".crt"), keyfile.CertificatePEM(cert)); err != nil {
		return nil, err
	}
	return &authority{name: name, cert: cert, key: key}, nil
}

func checkAuthority(cert *x509.Certificate, key *ecdsa.PrivateKey, now time.Time) error {
	switch {
	case !cert.IsCA:
		return errors.New("is not the certificate of an authority")
	case !key.PublicKey.Equal(cert.PublicKey):
		return errors.New("does not belong to the key beside it")
	case now.After(cert.NotAfter):
		return fmt.Errorf("has expired on %s", cert.NotAfter.Format(time.RFC3339))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("is valid only from %s on: is this machine's clock right?", cert.NotBefore.Format(time.RFC3339))
	}
	return nil
}
