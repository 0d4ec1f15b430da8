package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

const authorityRemedy = "restore it from a backup, or remove the whole directory and restart: " +
	"the cluster then gets a new identity and every node must join again"

// loadOrCreateAuthority gives the CA. Its key without its certificate is what a
// crash during the very first start leaves behind, and is completed; in a
// directory that already holds certificates it means loss, and is reported.
func loadOrCreateAuthority(dir string, c clock.PassiveClock) (*Signer, error) {
	certPath, keyPath := filepath.Join(dir, authorityName+".crt"), filepath.Join(dir, authorityName+".key")
	cert, err := readCertificate(certPath)
	if err != nil {
		return nil, &FileError{Path: certPath, Err: err, Remedy: authorityRemedy}
	}
	if cert == nil {
		return createAuthority(dir, certPath, keyPath, c)
	}
	key, err := readKey(keyPath)
	if err == nil && key == nil {
		err = errors.New("is missing, while the CA's certificate exists")
	}
	if err != nil {
		return nil, &FileError{Path: keyPath, Err: err, Remedy: authorityRemedy}
	}
	if err := checkAuthority(cert, key, c.Now()); err != nil {
		return nil, &FileError{Path: certPath, Err: err, Remedy: authorityRemedy}
	}
	return &Signer{caCert: cert, caKey: key, clock: c}, nil
}

func createAuthority(dir, certPath, keyPath string, c clock.PassiveClock) (*Signer, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("look into the directory for keys: %w", err)
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".crt" {
			return nil, &FileError{Path: certPath, Err: fmt.Errorf("is missing, while %s exists", entry.Name()), Remedy: authorityRemedy}
		}
	}
	key, err := loadOrCreateKey(keyPath, authorityRemedy)
	if err != nil {
		return nil, err
	}
	cert, err := newAuthority(key, c.Now())
	if err != nil {
		return nil, err
	}
	if err := writeFile(certPath, certificatePEM(cert)); err != nil {
		return nil, err
	}
	return &Signer{caCert: cert, caKey: key, clock: c}, nil
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

// loadOrIssue gives a leaf as its template demands. The key is kept, so that a
// renewal replaces one file and a crash cannot separate key and certificate.
func (b *Bundle) loadOrIssue(l leaf) (*pair, error) {
	certPath, keyPath := b.certPath(l.name), b.keyPath(l.name)
	remedy := fmt.Sprintf("remove %s.crt and %s.key in that directory and restart: they are then issued anew", l.name, l.name)
	cert, err := readCertificate(certPath)
	if err != nil {
		return nil, &FileError{Path: certPath, Err: err, Remedy: remedy}
	}
	if cert == nil {
		key, err := loadOrCreateKey(keyPath, remedy)
		if err != nil {
			return nil, err
		}
		return b.issueLeaf(l, key)
	}
	key, err := readKey(keyPath)
	if err == nil && key == nil {
		err = fmt.Errorf("is missing, while %s.crt exists", l.name)
	}
	if err != nil {
		return nil, &FileError{Path: keyPath, Err: err, Remedy: remedy}
	}
	if err := b.checkLeaf(cert, key); err != nil {
		return nil, &FileError{Path: certPath, Err: err, Remedy: remedy}
	}
	if b.signer.clock.Now().Add(renewBefore).After(cert.NotAfter) || !l.template.matches(cert) {
		return b.issueLeaf(l, key)
	}
	return &pair{cert: cert, key: key}, nil
}

func (b *Bundle) issueLeaf(l leaf, key *ecdsa.PrivateKey) (*pair, error) {
	cert, err := b.signer.issue(&key.PublicKey, l.template)
	if err != nil {
		return nil, err
	}
	// Leaf and CA: a joining node needs the CA from the chain to compare its hash.
	data := append(certificatePEM(cert), b.CAPEM()...)
	if err := writeFile(b.certPath(l.name), data); err != nil {
		return nil, err
	}
	return &pair{cert: cert, key: key}, nil
}

func (b *Bundle) checkLeaf(cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	if !key.PublicKey.Equal(cert.PublicKey) {
		return errors.New("does not belong to the key beside it")
	}
	if err := cert.CheckSignatureFrom(b.signer.caCert); err != nil {
		return fmt.Errorf("was not issued by the CA in this directory: %w", err)
	}
	return nil
}

func (t Template) matches(cert *x509.Certificate) bool {
	ips := func(list []net.IP) []string {
		var texts []string
		for _, ip := range list {
			texts = append(texts, ip.String())
		}
		return texts
	}
	return t.CommonName == cert.Subject.CommonName &&
		sameSet(t.Organizations, cert.Subject.Organization) &&
		sameSet(t.DNSNames, cert.DNSNames) &&
		sameSet(ips(t.IPs), ips(cert.IPAddresses)) &&
		slices.Equal(t.ExtKeyUsage, cert.ExtKeyUsage)
}

func sameSet(a, b []string) bool {
	sorted := func(s []string) []string { return slices.Compact(slices.Sorted(slices.Values(s))) }
	return slices.Equal(sorted(a), sorted(b))
}

func servingTemplate(opts Options) Template {
	names := append([]string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}, opts.ServerNames...)
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	for _, ip := range opts.ServerIPs {
		if !slices.ContainsFunc(ips, ip.Equal) {
			ips = append(ips, ip)
		}
	}
	return Template{
		CommonName:  "kube-apiserver",
		DNSNames:    slices.Compact(slices.Sorted(slices.Values(names))),
		IPs:         ips,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		TTL:         leafLifetime,
	}
}

func loadOrCreateKey(path, remedy string) (*ecdsa.PrivateKey, error) {
	key, err := readKey(path)
	if err != nil {
		return nil, &FileError{Path: path, Err: err, Remedy: remedy}
	}
	if key != nil {
		return key, nil
	}
	if key, err = newKey(); err != nil {
		return nil, err
	}
	data, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	return key, writeFile(path, data)
}
