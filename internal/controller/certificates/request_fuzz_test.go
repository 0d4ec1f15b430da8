package certificates

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// FuzzRequest reads requests for certificates: whoever asks for whatever, what is
// let through names one node and nothing else.
func FuzzRequest(f *testing.F) {
	for signer, template := range map[string]x509.CertificateRequest{
		certificatesv1.KubeAPIServerClientKubeletSignerName: goodClient(), certificatesv1.KubeletServingSignerName: goodServing(),
	} {
		raw, err := x509.CreateCertificateRequest(rand.Reader, &template, newKey())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(signer, "digital signature,client auth", raw, int32(3600))
		f.Add(signer, "digital signature,key encipherment,server auth", raw, int32(-1))
	}
	f.Add("example.com/signer", "any", []byte("x"), int32(0))
	f.Fuzz(func(t *testing.T, signer, usages string, der []byte, seconds int32) {
		spec := certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, ExpirationSeconds: &seconds, Username: "system:node:n1",
		}
		for _, u := range strings.Split(usages, ",") {
			spec.Usages = append(spec.Usages, certificatesv1.KeyUsage(u))
		}
		r, err := parse(spec)
		if err != nil {
			return
		}
		if !strings.HasPrefix(r.template.CommonName, nodeUserPrefix) || r.nodeName() == "" || !slices.Equal(r.template.Organizations, []string{"system:nodes"}) || r.template.TTL <= 0 {
			t.Errorf("would sign %+v", r.template)
		}
		if signer == certificatesv1.KubeAPIServerClientKubeletSignerName && len(r.sans) > 0 || signer != certificatesv1.KubeAPIServerClientKubeletSignerName && signer != certificatesv1.KubeletServingSignerName {
			t.Errorf("%s would sign for %v", signer, r.sans)
		}
		if _, err := decodeRequest(spec.Request); err != nil {
			t.Errorf("taken and not: %v", err)
		}
	})
}
