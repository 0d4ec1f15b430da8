package stolen

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// csrFor makes the request; node is the name of the node of whoever asks, if it is one.
func csrFor(t *testing.T, about, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	_, what, _ := strings.Cut(about, "csr: ")
	out := &certificatesv1.CertificateSigningRequest{TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}, ObjectMeta: meta("", "yard-csr")}
	if !strings.HasPrefix(about, "csr: ") {
		out.Name = "yard-new"
		return out
	}
	if what == "yard-id-node1" {
		out.Name = what
	}
	s := &out.Spec
	s.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
	s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	switch {
	case strings.HasPrefix(what, "serving"), what == "masters serving":
		s.SignerName = certificatesv1.KubeletServingSignerName
		s.Usages[1] = certificatesv1.UsageServerAuth
		template.DNSNames = []string{node}
	case strings.HasPrefix(what, "persons"), strings.HasSuffix(what, "for persons"):
		s.SignerName = certificatesv1.KubeAPIServerClientSignerName
	}
	detail(what, s, template)
	request, err := x509.CreateCertificateRequest(rand.Reader, template, keyFor(t, what))
	if err != nil {
		t.Fatal(err)
	}
	s.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	switch what {
	case "a key instead":
		s.Request = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: request})
	case "empty request":
		s.Request = []byte{}
	}
	return out
}

func keyFor(t *testing.T, what string) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch what {
	case "own client rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "own client weak key":
		key, err = ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	default:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func detail(what string, s *certificatesv1.CertificateSigningRequestSpec, r *x509.CertificateRequest) {
	seconds := func(n int32) { s.ExpirationSeconds = &n }
	switch what {
	case "other's client", "serving for other":
		r.Subject.CommonName = "system:node:yard-2"
	case "new node's client":
		r.Subject.CommonName = "system:node:yard-8"
	case "node without name":
		r.Subject.CommonName = "system:node:"
	case "odd node name":
		r.Subject.CommonName = "system:node:A_B/../x"
	case "masters for persons", "masters", "masters serving", "masters foreign":
		r.Subject.Organization = []string{"system:masters"}
	case "no group":
		r.Subject.Organization = nil
	case "persons", "persons node", "persons controller":
		r.Subject.CommonName, r.Subject.Organization = "jane", nil
	case "client with SAN":
		r.DNSNames = []string{"x"}
	case "client with IP", "serving other address":
		r.IPAddresses = []net.IP{net.IPv4(10, 9, 9, 9)}
	case "client with mail":
		r.EmailAddresses = []string{"a@example.com"}
	case "client with URI":
		r.URIs = []*url.URL{{Scheme: "x", Host: "y"}}
	case "serving nothing":
		r.DNSNames = nil
	case "serving wildcard":
		r.DNSNames = []string{"*"}
	case "client usage cert sign":
		s.Usages = append(s.Usages, certificatesv1.UsageCertSign)
	case "client usage only server":
		s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}
	case "client usage twice":
		s.Usages = append(s.Usages, certificatesv1.UsageClientAuth)
	case "client usage unknown":
		s.Usages = []certificatesv1.KeyUsage{"nonsense"}
	case "serving without server usage":
		s.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
	case "serving with client usage":
		s.Usages = append(s.Usages, certificatesv1.UsageClientAuth)
	case "bad signer":
		s.SignerName = "nodomain"
	case "empty signer":
		s.SignerName = ""
	case "unknown kubernetes.io signer":
		s.SignerName = "kubernetes.io/nope"
	case "foreign signer":
		s.SignerName = "example.com/signer"
	case "expires 60":
		seconds(60)
	case "expires 600":
		seconds(600)
	case "expires negative":
		seconds(-1)
	case "forged user", "forged user for persons":
		s.Username, s.Groups = "admin", []string{"system:masters"}
	}
	if what == "masters foreign" {
		s.SignerName = "example.com/signer"
	}
}
