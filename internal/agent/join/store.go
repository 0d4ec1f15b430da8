package join

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/everynode/everynode/internal/files/wholefile"
)

// The files in <DataDir>/pki.
const (
	caFile         = "ca.crt"
	nodeCAFile     = "node-ca.crt"
	clientFile     = "client.pem"
	servingFile    = "serving.pem"
	identityFile   = "identity.key"
	kubeconfigFile = "kubeconfig"
)

// store is the directory of the node's keys.
type store struct {
	dir string
	// kept is what its files hold; nil for a store that only looks.
	kept *contents
}

func (s store) path(name string) string { return filepath.Join(s.dir, name) }

// write replaces a file as a whole and makes sure that it is on the disk.
func (s store) write(name string, data []byte) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	err := s.kept.change(name, data, func() error {
		return wholefile.Write(s.path(name), 0o600, wholefile.Bytes(data))
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", s.path(name), err)
	}
	return nil
}

// has reports whether a file is there, whatever is in it.
func (s store) has(name string) bool {
	_, err := os.Lstat(s.path(name))
	return err == nil
}

// readAuthorities reads the certificates in a file; none when there is no such file.
func (s store) readAuthorities(file string) ([]*x509.Certificate, error) {
	data, err := os.ReadFile(s.path(file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the cluster's CA: %w", err)
	}
	certs, err := parseAuthorities(data)
	if err != nil {
		return nil, fmt.Errorf("%s holds no certificate; remove it and join again: %w", s.path(file), err)
	}
	if len(certs) == 0 {
		return nil, fmt.Errorf("%s holds no certificate; remove it and join again", s.path(file))
	}
	return certs, nil
}

// checkSecret refuses a file with a key that others can read.
func (s store) checkSecret(name string) error {
	info, err := os.Stat(s.path(name))
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil //nolint:nilerr // Whoever reads it says what is wrong.
	}
	return fmt.Errorf(
		"other users of this machine can read the key in %s (its mode is %04o): run chmod 600 %s, and if somebody may have "+
			"read it, "+
			"\"everynode node revoke\" on the control plane",
		s.path(name), info.Mode().Perm(), s.path(name),
	)
}

// readPair reads a certificate with its key; nil when there is no such file.
func (s store) readPair(name string) (*tls.Certificate, error) {
	if err := s.checkSecret(name); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("%s is not usable; remove it and join again: %w", s.path(name), err)
	}
	return &pair, nil
}

// isOf reports whether the pair's certificate is for this node.
func isOf(pair *tls.Certificate, nodeName string) bool {
	return pair.Leaf.Subject.CommonName == userPrefix+nodeName
}

// renewalTime is when a certificate should be replaced: after part (0 to 1) of its life.
func renewalTime(cert *x509.Certificate, part float64) time.Time {
	life := cert.NotAfter.Sub(cert.NotBefore)
	return cert.NotBefore.Add(time.Duration(float64(life) * part))
}

// valid reports whether the certificate can be used now.
func valid(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(cert.NotBefore) && now.Before(cert.NotAfter)
}
