package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func newKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestSignatureIsOfOneRequestOfOneNode(t *testing.T) {
	key, other := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	request := []byte("-----BEGIN CERTIFICATE REQUEST-----")
	sign := func(key *ecdsa.PrivateKey) map[string]string {
		t.Helper()
		proof, err := Sign(key, "n1", request)
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
	proof := sign(key)
	hash, err := Verify(proof, "n1", request)
	if again, err2 := Verify(sign(key), "n1", request); err != nil || err2 != nil || len(hash) != 64 || again != hash {
		t.Errorf("%q, %q, %v, %v: want the same hash of the key twice", hash, again, err, err2)
	}
	if foreign, err := Verify(sign(other), "n1", request); err != nil || foreign == hash {
		t.Errorf("another key has the hash %q, %v", foreign, err)
	}
	if hash, err := Verify(nil, "n1", request); hash != "" || err != nil {
		t.Errorf("without a signature: %q, %v", hash, err)
	}
	with := func(key, value string) map[string]string {
		out := maps.Clone(proof)
		out[key] = value
		return out
	}
	large := newKey(t, elliptic.P384())
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKIXPublicKey(edwards.Public())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		node        string
		request     string
	}{
		"another request":          {proof, "n1", string(request) + " "},
		"another node":             {proof, "n2", string(request)},
		"name and request shifted": {proof, "n1\n-----BEGIN", " CERTIFICATE REQUEST-----"},
		"another key's name":       {with(KeyAnnotation, sign(other)[KeyAnnotation]), "n1", string(request)},
		"another key's signature":  {with(SignatureAnnotation, sign(other)[SignatureAnnotation]), "n1", string(request)},
		"no key":                   {with(KeyAnnotation, ""), "n1", string(request)},
		"no signature":             {with(SignatureAnnotation, ""), "n1", string(request)},
		"garbage for a key":        {with(KeyAnnotation, "%"), "n1", string(request)},
		"garbage for a signature":  {with(SignatureAnnotation, "%"), "n1", string(request)},
		"a certificate's worth":    {with(KeyAnnotation, strings.Repeat("A", 4096)), "n1", string(request)},
		"a key on another curve":   {sign(large), "n1", string(request)},
		"a key of another kind":    {with(KeyAnnotation, base64.StdEncoding.EncodeToString(encoded)), "n1", string(request)},
		"something that is no key": {with(KeyAnnotation, base64.StdEncoding.EncodeToString([]byte("key"))), "n1", string(request)},
	} {
		if hash, err := Verify(c.annotations, c.node, []byte(c.request)); err == nil || hash != "" {
			t.Errorf("%s: %q, %v", name, hash, err)
		}
	}
}

func TestRecordSurvivesItsSecret(t *testing.T) {
	for _, r := range []Record{{Node: "n1", KeyHash: "ab"}, {Node: "n1.example.com", KeyHash: "ab", Registered: true, ClientIssuer: "c", ServingIssuer: "s"}} {
		var s corev1.Secret
		r.Write(&s)
		if got, err := ReadRecord(&s); err != nil || got != r || s.Namespace != "kube-system" {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
		s.Name = "another"
		if _, err := ReadRecord(&s); err == nil {
			t.Error("a Secret of another name is taken for a record")
		}
	}
	if _, err := ReadRecord(&corev1.Secret{}); err == nil {
		t.Error("an empty Secret is taken for a record")
	}
	if CheckName(strings.Repeat("a", 237)) != nil || CheckName(strings.Repeat("a", 238)) == nil {
		t.Error("the longest name is not 237")
	}
	for _, name := range []string{"", "A", "a/b", "a b", "..", "a_b"} {
		if CheckName(name) == nil {
			t.Errorf("%q can be the name of a node", name)
		}
	}
}

func TestRevocationCoversWhatWasBefore(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r, err := ReadRevocation(Revocation{Node: "n1", Before: at}.Secret())
	if err != nil || r.Node != "n1" || !r.Before.Equal(at) {
		t.Fatalf("%+v, %v", r, err)
	}
	if !r.Covers(at.Add(-time.Second)) || r.Covers(at) || r.Covers(at.Add(time.Second)) {
		t.Error("it covers another moment than before noon")
	}
	bad := Revocation{Node: "n1", Before: at}.Secret()
	bad.Data["revoked-before"] = []byte("yesterday")
	if _, err := ReadRevocation(bad); err == nil {
		t.Error("a revocation without a time is read")
	}
}
