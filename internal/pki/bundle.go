package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Users and groups of the certificates that the server issues to itself.
const (
	AdminUser         = "kubernetes-admin"
	KubeletClientUser = "kube-apiserver-kubelet-client"
	MastersGroup      = "system:masters"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	leafLifetime      = 365 * 24 * time.Hour
	// renewBefore is the remaining lifetime below which a certificate is issued anew.
	renewBefore   = 90 * 24 * time.Hour
	renewInterval = 12 * time.Hour

	authorityName     = "ca"
	servingName       = "apiserver"
	adminName         = "admin"
	kubeletClientName = "apiserver-kubelet-client"
	serviceAccountKey = "service-account.key"
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

// pair is a leaf certificate with its key, as kept in the directory.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Bundle is the cluster's key material. Its methods may be called from several
// goroutines.
type Bundle struct {
	dir            string
	signer         *Signer
	serviceAccount *ecdsa.PrivateKey
	leaves         []leaf

	serving, admin, kubeletClient atomic.Pointer[pair]
}

// leaf is one certificate that the server issues to itself.
type leaf struct {
	name     string
	template Template
	into     *atomic.Pointer[pair]
}

// LoadOrCreate reads the key material in dir and creates what is missing. It
// issues leaf certificates anew that end soon or whose names have changed. A file
// that cannot be used gives a *FileError and stays as it is.
func LoadOrCreate(dir string, opts Options) (*Bundle, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if err := os.MkdirAll(dir, directoryMode); err != nil {
		return nil, fmt.Errorf("create the directory for keys: %w", err)
	}
	signer, err := loadOrCreateAuthority(dir, opts.Clock)
	if err != nil {
		return nil, err
	}
	b := &Bundle{dir: dir, signer: signer}
	b.leaves = []leaf{
		{servingName, servingTemplate(opts), &b.serving},
		{adminName, clientTemplate(AdminUser, []string{MastersGroup}, leafLifetime), &b.admin},
		{kubeletClientName, clientTemplate(KubeletClientUser, []string{MastersGroup}, leafLifetime), &b.kubeletClient},
	}
	for _, l := range b.leaves {
		p, err := b.loadOrIssue(l)
		if err != nil {
			return nil, err
		}
		l.into.Store(p)
	}
	b.serviceAccount, err = loadOrCreateKey(filepath.Join(dir, serviceAccountKey),
		"restore it from a backup, or remove it and restart: every service account token is then void")
	return b, err
}

// Renew issues anew what ends soon. A long-running server calls it through Run.
func (b *Bundle) Renew() error {
	var errs []error
	for _, l := range b.leaves {
		p, err := b.loadOrIssue(l)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l.into.Store(p)
	}
	return errors.Join(errs...)
}

// Run renews certificates until ctx ends. Whoever reads the files must notice
// their change; TLS configurations made by the Bundle follow by themselves.
func (b *Bundle) Run(ctx context.Context) {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := b.Renew(); err != nil {
				klog.FromContext(ctx).Error(err, "Could not renew the server's certificates", "directory", b.dir)
			}
		}
	}
}

// Signer issues certificates of the cluster's CA.
func (b *Bundle) Signer() *Signer { return b.signer }

// CAPEM is the CA's certificate, PEM encoded.
func (b *Bundle) CAPEM() []byte { return certificatePEM(b.signer.caCert) }

// CAHash is the lowercase hex SHA-256 of the CA certificate's DER form: what a
// joining node compares before it trusts the server.
func (b *Bundle) CAHash() string { return HashOf(b.signer.caCert) }

// CAFile is the path of the CA's certificate.
func (b *Bundle) CAFile() string { return filepath.Join(b.dir, authorityName+".crt") }

// ServingFiles are the paths of the API server's certificate (leaf, then CA) and key.
func (b *Bundle) ServingFiles() (certFile, keyFile string) {
	return b.certPath(servingName), b.keyPath(servingName)
}

// ServiceAccountKey signs and verifies service account tokens.
func (b *Bundle) ServiceAccountKey() *ecdsa.PrivateKey { return b.serviceAccount }

// NodeClientTLS is how the API server calls a node's agent: it shows the
// certificate of KubeletClientUser and trusts only the cluster's CA. It follows
// renewals.
func (b *Bundle) NodeClientTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    b.CAPool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			p := b.kubeletClient.Load()
			return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}, nil
		},
	}
}

// CAPool holds the cluster's CA alone.
func (b *Bundle) CAPool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(b.signer.caCert)
	return pool
}

// HashOf is the lowercase hex SHA-256 of a certificate's DER form.
func HashOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// ReadCAHash reads the CA's hash from a directory that LoadOrCreate has filled.
func ReadCAHash(dir string) (string, error) {
	path := filepath.Join(dir, authorityName+".crt")
	cert, err := readCertificate(path)
	if err == nil && cert == nil {
		err = errors.New("no such file")
	}
	if err != nil {
		return "", &FileError{Path: path, Err: err, Remedy: "start the server once with this data directory, or name the right one"}
	}
	return HashOf(cert), nil
}

func (b *Bundle) certPath(name string) string { return filepath.Join(b.dir, name+".crt") }
func (b *Bundle) keyPath(name string) string  { return filepath.Join(b.dir, name+".key") }
