package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/members"
)

const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
	mastersGroup   = "system:masters"

	minTTL     = 10 * time.Minute
	maxTTL     = 365 * 24 * time.Hour
	minRSABits = 2048
)

// request is a certificate request that was read and whose signature holds.
type request struct {
	publicKey crypto.PublicKey
	template  pki.Template
	// names and addresses that the certificate is to be valid for
	sans []string
}

// nodeName is the node that the subject names.
func (r *request) nodeName() string { return strings.TrimPrefix(r.template.CommonName, nodeUserPrefix) }

// parse reads the request and checks it against the rules of its signer. Errors
// are for the requester to read.
func parse(spec certificatesv1.CertificateSigningRequestSpec) (*request, error) {
	x509Request, err := decodeRequest(spec.Request)
	if err != nil {
		return nil, err
	}
	usages, err := usagesOf(spec.Usages)
	if err != nil {
		return nil, err
	}
	r := &request{
		publicKey: x509Request.PublicKey,
		template: pki.Template{
			CommonName: x509Request.Subject.CommonName, Organizations: x509Request.Subject.Organization,
			DNSNames: x509Request.DNSNames, IPs: x509Request.IPAddresses,
			KeyUsage: usages.key, ExtKeyUsage: usages.extended, TTL: ttlOf(spec.ExpirationSeconds),
		},
	}
	r.sans = slices.Clone(x509Request.DNSNames)
	for _, name := range r.sans {
		// Not a wildcard, and in one form only, so that names can be compared.
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || net.ParseIP(name) != nil {
			return nil, fmt.Errorf("%q is not a DNS name that certificates are issued for", name)
		}
	}
	for _, ip := range x509Request.IPAddresses {
		r.sans = append(r.sans, ip.String())
	}
	if len(x509Request.EmailAddresses) > 0 || len(x509Request.URIs) > 0 {
		return nil, errors.New("e-mail addresses and URIs are not allowed as subject alternative names")
	}
	return r, r.check(spec)
}

func decodeRequest(data []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("spec.request holds no PEM block of type CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("spec.request cannot be parsed: %w", err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("spec.request is not signed with its own key: %w", err)
	}
	switch key := parsed.PublicKey.(type) {
	case *ecdsa.PublicKey, ed25519.PublicKey:
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits {
			return nil, fmt.Errorf("the RSA key has %d bits, at least %d are needed", bits, minRSABits)
		}
	default:
		return nil, fmt.Errorf("keys of type %T are not supported", key)
	}
	return parsed, nil
}

// check applies the rules of the signer.
func (r *request) check(spec certificatesv1.CertificateSigningRequestSpec) error {
	switch spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		if len(r.sans) > 0 {
			return errors.New("a node's client certificate has no subject alternative names")
		}
		return errors.Join(r.checkNodeSubject(), r.checkExtended(x509.ExtKeyUsageClientAuth))
	case certificatesv1.KubeletServingSignerName:
		if len(r.sans) == 0 {
			return errors.New("a node's serving certificate needs at least one DNS name or IP address")
		}
		if err := errors.Join(r.checkNodeSubject(), r.checkExtended(x509.ExtKeyUsageServerAuth)); err != nil {
			return err
		}
		if spec.Username != r.template.CommonName || !slices.Contains(spec.Groups, nodesGroup) {
			return fmt.Errorf(
				"a node's serving certificate must be requested by the node itself, %s, not by %s",
				r.template.CommonName, spec.Username,
			)
		}
		return nil
	case certificatesv1.KubeAPIServerClientSignerName:
		for _, group := range []string{mastersGroup, members.Group} {
			if slices.Contains(r.template.Organizations, group) {
				return fmt.Errorf("certificates for group %s are not issued", group)
			}
		}
		if r.template.CommonName == pki.KubeletClientUser {
			return fmt.Errorf("certificates for %s, the API server itself, are not issued", pki.KubeletClientUser)
		}
		if r.template.CommonName == "" {
			return errors.New("the subject has no common name")
		}
		return r.checkExtended(x509.ExtKeyUsageClientAuth)
	}
	return fmt.Errorf("unknown signer %q", spec.SignerName)
}

func (r *request) checkNodeSubject() error {
	if !slices.Equal(r.template.Organizations, []string{nodesGroup}) {
		return fmt.Errorf("the subject's organization must be exactly %q, got %q", nodesGroup, r.template.Organizations)
	}
	if !strings.HasPrefix(r.template.CommonName, nodeUserPrefix) || r.nodeName() == "" {
		return fmt.Errorf("the subject's common name must be %sNAME, got %q", nodeUserPrefix, r.template.CommonName)
	}
	return nil
}

func (r *request) checkExtended(want x509.ExtKeyUsage) error {
	if !slices.Equal(r.template.ExtKeyUsage, []x509.ExtKeyUsage{want}) {
		return errors.New("spec.usages does not fit the signer: it takes \"digital signature\", \"key encipherment\" and " +
			"either \"client auth\" or, for kubelet-serving, \"server auth\"")
	}
	if r.template.KeyUsage&^(x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment) != 0 {
		return errors.New("spec.usages holds a key usage that the signer does not grant")
	}
	return nil
}

type usages struct {
	key      x509.KeyUsage
	extended []x509.ExtKeyUsage
}

func usagesOf(names []certificatesv1.KeyUsage) (usages, error) {
	var u usages
	for _, name := range names {
		switch name {
		case certificatesv1.UsageDigitalSignature:
			u.key |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			u.key |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			u.extended = append(u.extended, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			u.extended = append(u.extended, x509.ExtKeyUsageServerAuth)
		default:
			return usages{}, fmt.Errorf("the usage %q is not granted", name)
		}
	}
	return u, nil
}

// ttlOf is what was asked for, within the limits, or the longest.
func ttlOf(seconds *int32) time.Duration {
	if seconds == nil {
		return maxTTL
	}
	return min(max(time.Duration(*seconds)*time.Second, minTTL), maxTTL)
}
