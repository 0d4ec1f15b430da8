package certificates

import (
	"crypto/ecdsa"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/pki"
)

// signed lets a key of a node sign a request for its name.
func signed(t *testing.T, csr *certificatesv1.CertificateSigningRequest, key *ecdsa.PrivateKey) {
	t.Helper()
	proof, err := identity.Sign(key, "n1", csr.Spec.Request)
	if err != nil {
		t.Fatal(err)
	}
	csr.Annotations = proof
}

func hashOf(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return identity.HashOf(public)
}

func TestWhoGetsTheNameOfANode(t *testing.T) {
	own, other := newKey(), newKey()
	self := func(csr *certificatesv1.CertificateSigningRequest) { csr.Spec.Username = "system:node:n1" }
	record := func(key *ecdsa.PrivateKey, registered bool) *identity.Record {
		return &identity.Record{Node: "n1", KeyHash: hashOf(t, key), Registered: registered}
	}
	revoked := func(at time.Time) *identity.Revocation { return &identity.Revocation{Node: "n1", Before: at} }
	old := 2 * time.Hour
	for _, c := range []struct {
		name   string
		key    *ecdsa.PrivateKey // signs the request; nil for none
		change func(*certificatesv1.CertificateSigningRequest)
		claim  Claim
		action Action
		reason string
	}{
		{"first join", own, nil, Claim{}, Approve, "AutoApproved"},
		{"first join of something else", nil, nil, Claim{}, Approve, "AutoApproved"},
		{"again with the same key", own, nil, Claim{Record: record(own, true), RecordAge: old, NodeExists: true}, Approve, "AutoApproved"},
		{"stolen token, the node lives", other, nil, Claim{Record: record(own, true), RecordAge: old, NodeExists: true}, Deny, "NodeNameTaken"},
		{"stolen token without a key, the node lives", nil, nil, Claim{Record: record(own, true), RecordAge: old, NodeExists: true}, Deny, "NodeNameTaken"},
		{"stolen token, the node has just joined", other, nil, Claim{Record: record(own, false), RecordAge: time.Second}, Deny, "NodeNameTaken"},
		{"the node never registered", other, nil, Claim{Record: record(own, false), RecordAge: old}, Approve, "AutoApproved"},
		{"the node was deleted", other, nil, Claim{Record: record(own, true), RecordAge: old}, Approve, "AutoApproved"},
		{"the node was deleted a moment after it joined", other, nil, Claim{Record: record(own, true), RecordAge: time.Second}, Approve, "AutoApproved"},
		{"a node without a key", own, nil, Claim{NodeExists: true}, Deny, "NodeNameTaken"},
		{"a node without a key, revoked", own, nil, Claim{NodeExists: true, Revocation: revoked(now.Add(-time.Hour))}, Approve, "AutoApproved"},
		{"something else again with its key", nil, nil, Claim{Record: record(testKey, true), RecordAge: old, NodeExists: true}, Approve, "AutoApproved"},
		{"the node itself", own, self, Claim{Record: record(own, true), RecordAge: old}, Approve, "AutoApproved"},
		{"the node itself, older than keys", nil, self, Claim{}, Approve, "AutoApproved"},
		{"the node itself with a new key", other, self, Claim{Record: record(own, true), RecordAge: old}, Approve, "AutoApproved"},
		{"asked before the revocation", own, nil, Claim{Revocation: revoked(now.Add(time.Second))}, Deny, "Revoked"},
		{"the node itself asked before the revocation", own, self, Claim{Revocation: revoked(now.Add(time.Second))}, Deny, "Revoked"},
		{"token of before the revocation", own, nil, Claim{Revocation: revoked(now.Add(-time.Minute)), TokenMade: now.Add(-time.Hour)}, Deny, "Revoked"},
		{"token of after the revocation", own, nil, Claim{Revocation: revoked(now.Add(-time.Minute)), TokenMade: now.Add(-time.Second)}, Approve, "AutoApproved"},
		{"signature of another request", own, func(c *certificatesv1.CertificateSigningRequest) {
			c.Spec.Request = pemRequest(t, goodClient(), newKey())
		}, Claim{Record: record(own, true), RecordAge: old, NodeExists: true}, Deny, "NodeIdentityInvalid"},
		{"half a signature", own, func(c *certificatesv1.CertificateSigningRequest) {
			delete(c.Annotations, identity.SignatureAnnotation)
		}, Claim{}, Deny, "NodeIdentityInvalid"},
	} {
		csr := newCSR(t, kubelet, goodClient())
		if c.key != nil {
			signed(t, csr, c.key)
		}
		if c.change != nil {
			c.change(csr)
		}
		got, err := decide(csr, fixed(Facts{MayRequest: true, Claim: c.claim}), now)
		if err != nil {
			t.Fatal(err)
		}
		if got.Action != c.action || got.Reason != c.reason {
			t.Errorf("%s: %s %s (%s), want %s %s", c.name, got.Action, got.Reason, got.Message, c.action, c.reason)
		}
		if got.Action == Approve && c.key != nil && got.claim != hashOf(t, c.key) {
			t.Errorf("%s: the name is to belong to %q", c.name, got.claim)
		}
		if got.Action == Deny && strings.Contains(got.Message, "\n") {
			t.Errorf("%s: the reason has several lines: %s", c.name, got.Message)
		}
	}
	long := newCSR(t, kubelet, x509.CertificateRequest{Subject: nodeSubject(strings.Repeat("n", 240))})
	if got, err := decide(long, fixed(Facts{MayRequest: true}), now); err != nil || got.Action != Deny {
		t.Errorf("a name too long to write down: %s %s, %v", got.Action, got.Reason, err)
	}
}

// A revocation between approval and signature still counts; and what is signed in the second of a revocation would be refused.
func TestRevokedBeforeTheSignature(t *testing.T) {
	for _, signer := range []string{kubelet, serving} {
		for at, want := range map[time.Duration]Action{time.Second: Fail, -time.Minute: Sign} {
			csr := newCSR(t, signer, map[string]x509.CertificateRequest{kubelet: goodClient(), serving: goodServing()}[signer])
			csr.Status.Conditions = append(csr.Status.Conditions, condition(certificatesv1.CertificateApproved, now))
			claim := Claim{Revocation: &identity.Revocation{Node: "n1", Before: now.Add(at)}}
			if got, err := decide(csr, fixed(Facts{Claim: claim}), now); err != nil || got.Action != want {
				t.Errorf("%s, revoked at %s from now: %s (%s), %v; want %s", signer, at, got.Action, got.Message, err, want)
			}
		}
	}
	csr := newCSR(t, kubelet, goodClient())
	csr.CreationTimestamp = metav1.NewTime(now.Add(time.Second))
	csr.Status.Conditions = append(csr.Status.Conditions, condition(certificatesv1.CertificateApproved, now))
	claim := Claim{Revocation: &identity.Revocation{Node: "n1", Before: now.Add(time.Second)}}
	if got, err := decide(csr, fixed(Facts{Claim: claim}), now); err != nil || got.Action != Wait || got.After <= 0 {
		t.Errorf("clocks apart: %s, %v; want it to wait", got.Action, err)
	}
}

// Two machines join under one name at once: one gets it.
func TestTwoJoinsAtOnce(t *testing.T) {
	for range 20 {
		var requests []runtime.Object
		for i := range 4 {
			csr := newCSR(t, kubelet, goodClient())
			csr.Name = fmt.Sprintf("csr-%d", i)
			signed(t, csr, newKey())
			requests = append(requests, csr)
		}
		s := newStage(t, true, requests...)
		var wg sync.WaitGroup
		for i := range requests {
			wg.Go(func() {
				for again := true; again; {
					result, err := s.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: fmt.Sprintf("csr-%d", i)}})
					again = err == nil && result.RequeueAfter == raceDelay
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		list, err := s.api.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, csr := range list.Items {
			if len(csr.Status.Certificate) > 0 {
				got++
			} else if !has(&csr, certificatesv1.CertificateDenied) {
				t.Errorf("%s has no answer: %v", csr.Name, csr.Status.Conditions)
			}
		}
		if got != 1 {
			t.Fatalf("%d machines have the name, want one", got)
		}
	}
}

func TestRecordsAreKeptAndSwept(t *testing.T) {
	csr, key := newCSR(t, kubelet, goodClient()), newKey()
	signed(t, csr, key)
	s := newStage(t, true, csr)
	s.reconcile(t)
	record, _, err := s.record(t.Context(), "n1")
	if want := (identity.Record{Node: "n1", KeyHash: hashOf(t, key), ClientIssuer: pki.HashOf(s.bundle.Signer().Authority())}); err != nil || record != want {
		t.Fatalf("record %+v, %v; want %+v", record, err, want)
	}
	if err := s.noteSigned(t.Context(), "n1", true); err != nil {
		t.Fatal(err)
	}
	if record, _, err = s.record(t.Context(), "n1"); err != nil || !record.Registered || record.ServingIssuer != pki.HashOf(s.bundle.NodeSigner().Authority()) {
		t.Fatalf("record %+v, %v after the serving certificate", record, err)
	}

	made := metav1.NewTime(now.Add(-2 * time.Hour))
	secret := func(write func(*corev1.Secret)) *corev1.Secret {
		out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: made}}
		write(out)
		out.CreationTimestamp = made
		return out
	}
	recordOf := func(node string) *corev1.Secret {
		return secret(func(s *corev1.Secret) { identity.Record{Node: node, KeyHash: "k"}.Write(s) })
	}
	young := recordOf("young")
	young.CreationTimestamp = metav1.NewTime(now)
	s = newStage(t, true, recordOf("there"), recordOf("gone"), young, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "there"}},
		identity.Revocation{Node: "lately", Before: now.Add(-24 * time.Hour)}.Secret(), identity.Revocation{Node: "long-ago", Before: now.Add(-367 * 24 * time.Hour)}.Secret())
	if err := s.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"node-identity-there": true, "node-identity-gone": false, "node-identity-young": true,
		"node-revocation-lately": true, "node-revocation-long-ago": false,
	} {
		if got := exists(t, s.api, name); got != want {
			t.Errorf("%s is there: %v, want %v", name, got, want)
		}
	}
}

func exists(t *testing.T, api *fake.Clientset, name string) bool {
	t.Helper()
	list, err := api.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		if s.Name == name {
			return true
		}
	}
	return false
}
