package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/internal/pki"
)

// stage is a reconciler over in-memory clients and a real CA.
type stage struct {
	*reconciler
	api    *fake.Clientset
	bundle *pki.Bundle
	asked  []string
}

func newStage(t *testing.T, allowed bool, objects ...runtime.Object) *stage {
	t.Helper()
	c := clocktesting.NewFakePassiveClock(now)
	bundle, err := pki.LoadOrCreate(t.TempDir(), pki.Options{Clock: c})
	if err != nil {
		t.Fatal(err)
	}
	cached := crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRuntimeObjects(objects...).
		WithIndex(&corev1.Node{}, addressIndex, namesOf).Build()
	s := &stage{api: fake.NewClientset(objects...), bundle: bundle}
	s.api.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		s.asked = append(s.asked, review.Spec.User+" "+review.Spec.ResourceAttributes.Subresource)
		review.Status.Allowed = allowed
		return true, review, nil
	})
	s.api.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		a.(clienttesting.CreateAction).GetObject().(*corev1.Secret).CreationTimestamp = metav1.NewTime(now)
		return false, nil, nil // as a server does
	})
	s.reconciler = &reconciler{reader: cached, Config: Config{
		Client: s.api, Signer: bundle.Signer(), NodeSigner: bundle.NodeSigner(), Duration: maxTTL, Clock: c, Control: func() Control { return control },
	}}
	return s
}

func (s *stage) reconcile(t *testing.T) (*certificatesv1.CertificateSigningRequest, ctrl.Result) {
	t.Helper()
	result, err := s.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "csr-1"}})
	if err != nil {
		t.Fatal(err)
	}
	csr, err := s.api.CertificatesV1().CertificateSigningRequests().Get(t.Context(), "csr-1", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, result
	}
	if err != nil {
		t.Fatal(err)
	}
	return csr, result
}

func TestJoiningNodeGetsItsCertificateInOneRound(t *testing.T) {
	csr := newCSR(t, kubelet, goodClient())
	csr.Spec.ExpirationSeconds = new(int32(3600))
	s := newStage(t, true, csr)
	got, _ := s.reconcile(t)
	if !has(got, certificatesv1.CertificateApproved) || len(s.asked) != 1 || s.asked[0] != "system:bootstrap:abcdef nodeclient" {
		t.Fatalf("conditions %v, asked %v", got.Status.Conditions, s.asked)
	}
	block, _ := pem.Decode(got.Status.Certificate)
	if block == nil {
		t.Fatal("no certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cert.Verify(x509.VerifyOptions{Roots: s.bundle.CAPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil || cert.Subject.CommonName != "system:node:n1" || !cert.NotAfter.Equal(now.Add(time.Hour)) || cert.IsCA {
		t.Errorf("certificate for %q until %s (CA %v): %v", cert.Subject.CommonName, cert.NotAfter, cert.IsCA, err)
	}
}

func TestRenewalAsksForTheNodesOwnPermission(t *testing.T) {
	csr := newCSR(t, kubelet, goodClient())
	csr.Spec.Username, csr.Spec.Groups = "system:node:n1", []string{"system:nodes"}
	s := newStage(t, true, csr)
	s.reconcile(t)
	if len(s.asked) != 1 || s.asked[0] != "system:node:n1 selfnodeclient" {
		t.Errorf("asked %v", s.asked)
	}
}

func TestServingCertificateWaitsForTheNodesAddresses(t *testing.T) {
	s := newStage(t, false, newCSR(t, serving, goodServing()), node("n1", "10.0.0.1"))
	got, result := s.reconcile(t)
	if len(got.Status.Conditions) != 0 || result.RequeueAfter == 0 {
		t.Fatalf("conditions %v, again after %s; want none and another look", got.Status.Conditions, result.RequeueAfter)
	}
	s = newStage(t, false, newCSR(t, serving, goodServing()), node("n1", "10.0.0.1", "fd00::1"))
	if got, _ = s.reconcile(t); len(got.Status.Certificate) == 0 {
		t.Errorf("not signed: %v", got.Status.Conditions)
	}
}

func TestBadRequestFailsAndOldOneGoes(t *testing.T) {
	bad := newCSR(t, kubelet, x509.CertificateRequest{})
	got, _ := newStage(t, true, bad).reconcile(t)
	if !has(got, certificatesv1.CertificateFailed) || got.Status.Conditions[0].Message == "" || len(got.Status.Certificate) > 0 {
		t.Errorf("status %v", got.Status)
	}
	old := newCSR(t, person, goodClient())
	old.CreationTimestamp = metav1.NewTime(now.Add(-25 * time.Hour))
	if got, _ := newStage(t, true, old).reconcile(t); got != nil {
		t.Errorf("a request of yesterday is still there: %v", got.Status)
	}
}

// The serving certificate is of the nodes' authority, which nobody takes the API server for, and of the node alone.
func TestServingCertificateIsOfTheNodesAuthority(t *testing.T) {
	s := newStage(t, false, newCSR(t, serving, goodServing()), node("n1", "10.0.0.1", "fd00::1"))
	got, _ := s.reconcile(t)
	block, _ := pem.Decode(got.Status.Certificate)
	if block == nil {
		t.Fatalf("not signed: %v", got.Status.Conditions)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: s.bundle.CAPool(), CurrentTime: now}); err == nil {
		t.Error("who trusts the cluster's CA trusts a node's serving certificate")
	}
	if err := cert.CheckSignatureFrom(s.bundle.NodeSigner().Authority()); err != nil {
		t.Error(err)
	}
	// Another node reports the same: it belongs to whose name it is, or who was there first.
	for _, c := range []struct {
		other *corev1.Node
		age   time.Duration // of the other, beyond n1's
		ours  bool
	}{
		{node("n2", "10.0.0.1"), time.Hour, false}, {node("n2", "FD00:0::1"), time.Hour, false}, {node("n2", "10.0.0.1"), 0, false},
		{node("n2", "10.0.0.1"), -time.Hour, true}, {node("n2", "n1"), time.Hour, true}, {node("n2", "n1"), -time.Hour, true},
	} {
		n1 := node("n1", "10.0.0.1", "fd00::1")
		n1.CreationTimestamp, c.other.CreationTimestamp = metav1.NewTime(now), metav1.NewTime(now.Add(-c.age))
		s = newStage(t, false, newCSR(t, serving, goodServing()), n1, c.other)
		if got, _ = s.reconcile(t); has(got, certificatesv1.CertificateFailed) == c.ours {
			t.Errorf("with %v, older by %s: %v", c.other.Status.Addresses, c.age, got.Status.Conditions)
		}
	}
}
