package certificatesigningrequest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/ptr"
)

func newRequest(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n1"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}
}

// Whoever asks cannot say that somebody else does.
func TestRequesterIsWhoAsks(t *testing.T) {
	c := newRequest(t)
	c.Spec.Username, c.Spec.Groups = "admin", []string{"system:masters"}
	ctx := request.WithUser(context.Background(), &user.DefaultInfo{Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers"}, Extra: map[string][]string{"k": {"v"}}})
	recordRequester(ctx, c)
	if c.Spec.Username != "system:bootstrap:abcdef" || len(c.Spec.Groups) != 1 || c.Spec.Groups[0] != "system:bootstrappers" || c.Spec.Extra["k"][0] != "v" {
		t.Errorf("recorded %s of %v", c.Spec.Username, c.Spec.Groups)
	}
	recordRequester(context.Background(), c)
	if c.Spec.Username != "" || c.Spec.Groups != nil || c.Spec.Extra != nil {
		t.Errorf("recorded %s of %v for nobody", c.Spec.Username, c.Spec.Groups)
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*certificatesv1.CertificateSigningRequest)
		want string
	}{
		"valid":       {func(*certificatesv1.CertificateSigningRequest) {}, ""},
		"no usages":   {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.Usages = nil }, "spec.usages: Required value"},
		"no signer":   {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "" }, "spec.signerName: Required value"},
		"bare signer": {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.SignerName = "mine" }, `spec.signerName: Invalid value: "mine": must be a fully qualified domain and path of the form 'example.com/signer-name'`},
		"short":       {func(c *certificatesv1.CertificateSigningRequest) { c.Spec.ExpirationSeconds = ptr.To[int32](599) }, "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"},
		"usage twice": {func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageClientAuth)
		}, `spec.usages[1]: Duplicate value: "client auth"`},
	} {
		r := newRequest(t)
		c.edit(r)
		errs := Validate(r)
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || errs[0].Error() != c.want) {
			t.Errorf("%s: got %v, want %s", name, errs, c.want)
		}
	}
	r := newRequest(t)
	r.Spec.Request = []byte("x")
	if errs := Validate(r); len(errs) != 1 || errs[0].Detail != "PEM block type must be CERTIFICATE REQUEST" {
		t.Errorf("no PEM: got %v", errs)
	}
	r = newRequest(t)
	block, _ := pem.Decode(r.Spec.Request)
	block.Bytes[len(block.Bytes)-3] ^= 1 // of a number that is half of the signature
	r.Spec.Request = pem.EncodeToMemory(block)
	if errs := Validate(r); len(errs) != 1 || errs[0].Detail != "x509: ECDSA verification failure" {
		t.Errorf("signed by nobody: got %v", errs)
	}
}

func decided(c *certificatesv1.CertificateSigningRequest, types ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequest {
	c = c.DeepCopy()
	for _, t := range types {
		c.Status.Conditions = append(c.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: t, Status: corev1.ConditionTrue})
	}
	return c
}

// A decision is made through the approval subresource, once.
func TestDecisions(t *testing.T) {
	open := newRequest(t)
	approved := decided(open, certificatesv1.CertificateApproved)
	strategy := approvalStrategy{}
	ctx := context.Background()
	if errs := strategy.ValidateUpdate(ctx, approved, open); len(errs) > 0 {
		t.Errorf("approve: %v", errs)
	}
	if errs := strategy.ValidateUpdate(ctx, decided(approved, certificatesv1.CertificateDenied), approved); len(errs) != 1 {
		t.Errorf("deny what is approved: got %v, want one error", errs)
	}
	if errs := strategy.ValidateUpdate(ctx, open, approved); len(errs) != 1 {
		t.Errorf("take the approval back: got %v, want one error", errs)
	}
	if errs := ValidateStatusUpdate(approved, open); len(errs) != 1 || errs[0].Error() != `status.conditions: Forbidden: updates may not add a condition of type "Approved"` {
		t.Errorf("approve through status: got %v", errs)
	}
	signed, again := approved.DeepCopy(), approved.DeepCopy()
	signed.Status.Certificate, again.Status.Certificate = []byte("one"), nil
	if errs := ValidateStatusUpdate(again, signed); len(errs) != 1 || errs[0].Error() != "status.certificate: Forbidden: updates may not set certificate content after it has been set" {
		t.Errorf("take the certificate back: got %v", errs)
	}
	forged := decided(open, certificatesv1.CertificateApproved)
	forged.Spec.Username, forged.Status.Certificate = "admin", []byte("x")
	strategy.PrepareForUpdate(ctx, forged, open)
	if forged.Spec.Username != open.Spec.Username || forged.Status.Certificate != nil || forged.Status.Conditions[0].LastUpdateTime.IsZero() {
		t.Error("the approval changed more than the conditions, or did not stamp them")
	}
}

func TestRow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := decided(newRequest(t), certificatesv1.CertificateApproved)
	c.Name, c.CreationTimestamp, c.Spec.Username = "csr", metav1.NewTime(now.Add(-time.Minute)), "u"
	c.Spec.ExpirationSeconds = ptr.To[int32](86400)
	c.Status.Certificate = []byte("x")
	if got := state(c); got != "Approved,Issued" {
		t.Errorf("condition is %s", got)
	}
}
