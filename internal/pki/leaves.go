package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

// pair is a leaf certificate with its key, as kept in the directory.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// chain is what the file holds behind the certificate.
	chain []*x509.Certificate
}

// leaf is one certificate that the server issues to itself.
type leaf struct {
	name     string
	template Template
}

// leaves are the certificates of the server, by the names of their files.
var leaves = []string{servingName, adminName, kubeletClientName}

func leafTemplates(opts Options) []leaf {
	return []leaf{
		{servingName, servingTemplate(opts)},
		{adminName, clientTemplate(AdminUser, []string{MastersGroup}, leafLifetime)},
		{kubeletClientName, clientTemplate(KubeletClientUser, nil, leafLifetime)},
	}
}

func leafRemedy(name string) string {
	return fmt.Sprintf("remove %s.crt and %s.key in that directory and restart: they are then issued again", name, name)
}

// tls is the pair as a connection shows it.
func (p *pair) tls() *tls.Certificate {
	raw := [][]byte{p.cert.Raw}
	for _, cert := range p.chain {
		raw = append(raw, cert.Raw)
	}
	return &tls.Certificate{Certificate: raw, PrivateKey: p.key, Leaf: p.cert}
}

// readLeaf reads a pair; nil when there is no certificate. Who signed it is not looked at.
func readLeaf(dir, name string) (*pair, error) {
	certPath, keyPath, remedy := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"), leafRemedy(name)
	certs, err := keyfile.ReadCertificates(certPath)
	if err != nil || len(certs) == 0 {
		return nil, keyfile.Because(certPath, err, remedy)
	}
	key, err := keyfile.ReadKey(keyPath)
	if err == nil && key == nil {
		err = fmt.Errorf("is missing, while %s.crt exists", name)
	}
	if err != nil {
		return nil, keyfile.Because(keyPath, err, remedy)
	}
	if !key.PublicKey.Equal(certs[0].PublicKey) {
		return nil, keyfile.Because(certPath, errors.New("does not belong to the key beside it"), remedy)
	}
	return &pair{cert: certs[0], key: key, chain: certs[1:]}, nil
}

// loadOrIssue gives a leaf as its template demands. Its key is kept, so that this
// replaces one file and a crash cannot separate key and certificate.
func loadOrIssue(dir string, a *authority, l leaf, c clock.PassiveClock) (*pair, error) {
	p, err := readLeaf(dir, l.name)
	if err != nil {
		return nil, err
	}
	if p == nil {
		key, err := keyfile.LoadOrCreateKey(filepath.Join(dir, l.name+".key"), leafRemedy(l.name))
		if err != nil {
			return nil, err
		}
		p = &pair{key: key}
	} else if err := a.signed(p.cert); err != nil {
		return nil, keyfile.Because(
			filepath.Join(dir, l.name+".crt"), fmt.Errorf("was not issued by the CA in this directory: %w", err),
			leafRemedy(l.name),
		)
	}
	if p.cert == nil || c.Now().Add(renewBefore).After(p.cert.NotAfter) || !l.template.matches(p.cert) ||
		p.cert.CheckSignatureFrom(a.cert) != nil {
		signer := &Signer{authority: func() *authority { return a }, clock: c}
		p.cert, err = signer.issue(&p.key.PublicKey, l.template)
		if err != nil {
			return nil, err
		}
	}
	p.chain = a.chain()
	return p, p.write(dir, l.name)
}

// write brings the file of the certificate up to date.
func (p *pair) write(dir, name string) error {
	path := filepath.Join(dir, name+".crt")
	// Leaf and CA: a joining node needs the CA from the chain to compare its hash.
	wanted := certificatesPEM(append([]*x509.Certificate{p.cert}, p.chain...))
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, wanted) {
		return nil
	}
	return keyfile.Write(path, wanted)
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

// templateOf is what a certificate says, for one like it.
func templateOf(cert *x509.Certificate) Template {
	return Template{
		CommonName: cert.Subject.CommonName, Organizations: cert.Subject.Organization,
		DNSNames: cert.DNSNames, IPs: cert.IPAddresses, KeyUsage: cert.KeyUsage, ExtKeyUsage: cert.ExtKeyUsage,
		TTL: min(leafLifetime, max(cert.NotAfter.Sub(cert.NotBefore), time.Hour)),
	}
}
