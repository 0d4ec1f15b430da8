package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// permitted allows "verb name".
type permitted string

func (p permitted) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetResource() == "signers" && a.GetAPIGroup() == "certificates.k8s.io" && a.GetVerb()+" "+a.GetName() == string(p) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func csr(t *testing.T, signer string, organizations ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: organizations}}, key)
	if err != nil {
		t.Fatal(err)
	}
	c := &certificatesv1.CertificateSigningRequest{}
	c.Spec.SignerName = signer
	c.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return c
}

func TestValidate(t *testing.T) {
	const signer = "example.com/mine"
	old := csr(t, signer)
	change := func(f func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		c := old.DeepCopy()
		f(c)
		return c
	}
	signed := change(func(c *certificatesv1.CertificateSigningRequest) { c.Status.Certificate = []byte("x") })
	failed := change(func(c *certificatesv1.CertificateSigningRequest) {
		c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateFailed}}
	})
	disguised := change(func(c *certificatesv1.CertificateSigningRequest) {
		c.Spec.SignerName, c.Status.Certificate = "other.com/x", []byte("x")
	})
	cases := []struct {
		name        string
		may         permitted
		subresource string
		obj, old    *certificatesv1.CertificateSigningRequest
		says        string
	}{
		{"request", "", "", old, nil, ""},
		{"request for masters", "", "", csr(t, "kubernetes.io/kube-apiserver-client", "dev", "system:masters"), nil,
			"use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"},
		{"request to join as a server", "", "", csr(t, "kubernetes.io/kube-apiserver-client", "system:bootstrappers:servers"), nil,
			"use of kubernetes.io/kube-apiserver-client signer with system:bootstrappers:servers group is not allowed"},
		{"masters elsewhere", "", "", csr(t, signer, "system:masters"), nil, ""},
		{"approval", "approve example.com/mine", "approval", failed, old, ""},
		{"approval by domain", "approve example.com/*", "approval", failed, old, ""},
		{"approval without permission", "sign example.com/mine", "approval", failed, old, `user not permitted to approve requests with signerName "example.com/mine"`},
		{"signing", "sign example.com/mine", "status", signed, old, ""},
		{"signing without permission", "approve example.com/mine", "status", signed, old, `user not permitted to sign requests with signerName "example.com/mine"`},
		{"failing without permission", "", "status", failed, old, "not permitted to sign"},
		{"signing under another name", "sign other.com/x", "status", disguised, old, `signerName "example.com/mine"`},
		{"nothing changed", "", "status", old, old, ""},
		{"labels", "", "", old, old, ""},
	}
	for _, c := range cases {
		operation, before := admission.Create, runtime.Object(nil)
		if c.old != nil {
			operation, before = admission.Update, c.old
		}
		a := admission.NewAttributesRecord(c.obj, before, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"), "", "csr-1",
			certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), c.subresource, operation, nil, false, &user.DefaultInfo{Name: "jane"})
		err := New(c.may).Validate(t.Context(), a, nil)
		if (err == nil) != (c.says == "") || (err != nil && (!strings.Contains(err.Error(), c.says) || !apierrors.IsForbidden(err))) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}
