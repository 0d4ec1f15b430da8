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
// let through is within the rules of its signer.
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
	f.Add(certificatesv1.KubeAPIServerClientSignerName, "client auth", []byte("x"), int32(0))
	f.Add("example.com/signer", "any", []byte("x"), int32(0))
	f.Fuzz(func(t *testing.T, signer, usages string, der []byte, seconds int32) {
		spec := certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer, ExpirationSeconds: &seconds, Username: "system:node:n1", Groups: []string{"system:nodes"},
		}
		for _, u := range strings.Split(usages, ",") {
			spec.Usages = append(spec.Usages, certificatesv1.KeyUsage(u))
		}
		r, err := parse(spec)
		if err != nil {
			return
		}
		name, groups := r.template.CommonName, r.template.Organizations
		good := r.template.TTL > 0
		switch signer {
		case certificatesv1.KubeAPIServerClientSignerName:
			good = good && name != "" && !slices.Contains(groups, "system:masters")
		case certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName:
			serving := signer == certificatesv1.KubeletServingSignerName
			good = good && strings.HasPrefix(name, nodeUserPrefix) && r.nodeName() != "" && slices.Equal(groups, []string{"system:nodes"}) && serving == (len(r.sans) > 0)
		default:
			good = false
		}
		if !good {
			t.Errorf("%s would sign %+v", signer, r.template)
		}
		if _, err := decodeRequest(spec.Request); err != nil {
			t.Errorf("taken and not: %v", err)
		}
	})
}
