package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// Backdate is how far before its issue a certificate is already valid, so that a
// machine with a slow clock can use it at once.
const Backdate = 5 * time.Minute

// Template says what a certificate is to contain. Nothing else is copied from a
// request.
type Template struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
	KeyUsage      x509.KeyUsage
	ExtKeyUsage   []x509.ExtKeyUsage
	// TTL is the time from now to the end of validity. It is cut at the CA's own end.
	TTL time.Duration
}

// Signer issues certificates of an authority, after its replacement of the new one.
type Signer struct {
	authority func() *authority
	clock     clock.PassiveClock
}

// Authority is the certificate of the authority that signs now.
func (s *Signer) Authority() *x509.Certificate { return s.authority().cert }

// Sign issues a certificate for a public key and returns it PEM encoded.
func (s *Signer) Sign(publicKey crypto.PublicKey, template Template) ([]byte, error) {
	cert, err := s.issue(publicKey, template)
	if err != nil {
		return nil, err
	}
	return keyfile.CertificatePEM(cert), nil
}

// NewClient makes a key and a client certificate for a user and its groups, both
// PEM encoded. Nothing is stored.
func (s *Signer) NewClient(user string, groups []string, ttl time.Duration) (certPEM, privateKeyPEM []byte, err error) {
	key, err := keyfile.NewKey()
	if err != nil {
		return nil, nil, err
	}
	certPEM, err = s.Sign(&key.PublicKey, clientTemplate(user, groups, ttl))
	if err != nil {
		return nil, nil, err
	}
	privateKeyPEM, err = keyfile.KeyPEM(key)
	return certPEM, privateKeyPEM, err
}

func (s *Signer) issue(publicKey crypto.PublicKey, t Template) (*x509.Certificate, error) {
	by, now := s.authority(), s.clock.Now()
	notAfter := now.Add(t.TTL)
	if notAfter.After(by.cert.NotAfter) {
		notAfter = by.cert.NotAfter
	}
	if !notAfter.After(now) {
		return nil, errors.New("issue certificate: the requested lifetime is over before it begins")
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: t.CommonName, Organization: t.Organizations},
		DNSNames:              t.DNSNames,
		IPAddresses:           t.IPs,
		NotBefore:             now.Add(-Backdate).UTC(),
		NotAfter:              notAfter.UTC(),
		KeyUsage:              t.KeyUsage,
		ExtKeyUsage:           t.ExtKeyUsage,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, publicKey, by.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %q: %w", t.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func newAuthority(key *ecdsa.PrivateKey, commonName string, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-Backdate).UTC(),
		NotAfter:              now.Add(authorityLifetime).UTC(),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("create the certificate authority: %w", err)
	}
	return x509.ParseCertificate(der)
}

func clientTemplate(user string, groups []string, ttl time.Duration) Template {
	return Template{
		CommonName:    user,
		Organizations: groups,
		KeyUsage:      x509.KeyUsageDigitalSignature,
		ExtKeyUsage:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		TTL:           ttl,
	}
}

func newSerial() (*big.Int, error) {
	// 127 random bits: positive, and within the 20 octets that RFC 5280 allows.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	return serial.Add(serial, big.NewInt(1)), nil
}
