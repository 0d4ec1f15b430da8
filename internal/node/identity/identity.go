// Package identity binds the name of a node to a key that stays on the node, so
// that a join token alone cannot take over the name of a node that lives.
//
// An agent makes a key when it joins, and signs each certificate request with it
// (Sign). The control plane keeps the hash of the key in a Secret of kube-system,
// one for each node (Record), from the first join on. A later join with a token
// needs a request that the same key signed (Verify).
//
// The signature covers the request, so that a copy of it is worth nothing without
// the key that the request is for.
package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// Annotations of a certificate request with the node's key and its signature.
const (
	KeyAnnotation       = "everynode.io/node-identity-key"
	SignatureAnnotation = "everynode.io/node-identity-signature"
)

// maxAnnotation is far above what a key or a signature takes.
const maxAnnotation = 1024

// Sign gives the annotations that prove to whoever knows the key's hash that a
// certificate request, in PEM as it is sent, comes from the node.
func Sign(key *ecdsa.PrivateKey, node string, request []byte) (map[string]string, error) {
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("encode the node's key: %w", err)
	}
	digest := digestOf(node, request)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return nil, fmt.Errorf("sign the certificate request with the node's key: %w", err)
	}
	return map[string]string{
		KeyAnnotation:       base64.StdEncoding.EncodeToString(public),
		SignatureAnnotation: base64.StdEncoding.EncodeToString(signature),
	}, nil
}

// Verify returns the hash of the key that signed a request, or "" when the request
// has no signature. A signature that does not fit is an error.
func Verify(annotations map[string]string, node string, request []byte) (keyHash string, err error) {
	keyText, signatureText := annotations[KeyAnnotation], annotations[SignatureAnnotation]
	if keyText == "" && signatureText == "" {
		return "", nil
	}
	if len(keyText) > maxAnnotation || len(signatureText) > maxAnnotation {
		return "", errors.New("the node's key or its signature is too long")
	}
	public, err := base64.StdEncoding.DecodeString(keyText)
	if err != nil {
		return "", fmt.Errorf("the annotation %s cannot be read: %w", KeyAnnotation, err)
	}
	signature, err := base64.StdEncoding.DecodeString(signatureText)
	if err != nil {
		return "", fmt.Errorf("the annotation %s cannot be read: %w", SignatureAnnotation, err)
	}
	parsed, err := x509.ParsePKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("the node's key cannot be read: %w", err)
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return "", errors.New("the node's key is not an ECDSA key on P-256")
	}
	digest := digestOf(node, request)
	if !ecdsa.VerifyASN1(key, digest[:], signature) {
		return "", errors.New("the node's key did not sign this certificate request")
	}
	return HashOf(public), nil
}

// HashOf is how a public key, in its PKIX form, is written down.
func HashOf(public []byte) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:])
}

// digestOf says what is signed. The first line keeps the signature from meaning
// anything else.
func digestOf(node string, request []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("everynode.io node identity, version 1\n"+node+"\n"), request...))
}
