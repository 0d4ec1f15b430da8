package certificates

import (
	"crypto/x509"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/node/identity"
)

// registerPatience is how long the name of a machine that has joined is kept for
// it although no Node was seen yet.
const registerPatience = time.Hour

// Claim is what decides whom the name of a node belongs to.
type Claim struct {
	// Record is what was written down at the first join, nil if there is nothing.
	Record *identity.Record
	secret *corev1.Secret // that holds it
	// RecordAge is how long ago that was.
	RecordAge time.Duration
	// NodeExists tells that there is a Node of that name.
	NodeExists bool
	// Revocation is the last one of the node's certificates, nil if there was none.
	Revocation *identity.Revocation
	// TokenMade is when the join token was made that the requester showed; zero if it
	// showed none.
	TokenMade time.Time
}

// revoked says why a request that was made before the revocation of its node's
// certificates, or with a token of before, is refused; empty if it is neither.
func (c Claim) revoked(csr *certificatesv1.CertificateSigningRequest) string {
	if c.Revocation == nil {
		return ""
	}
	at := c.Revocation.Before.Format(time.RFC3339)
	if c.Revocation.Covers(csr.CreationTimestamp.Time) {
		return fmt.Sprintf("the certificates of node %s were revoked at %s, after this was asked for", c.Revocation.Node, at)
	}
	if !c.TokenMade.IsZero() && c.Revocation.Covers(c.TokenMade) {
		return fmt.Sprintf(
			"the certificates of node %s were revoked at %s, and this join token is older: make a new one with \"everynode "+
				"token create\"",
			c.Revocation.Node, at,
		)
	}
	return ""
}

// decideClaim decides about a node's client certificate that the requester may ask
// for. The name of a node that lives is given to nobody who does not have its key.
// An approval says which key the name belongs to from now on.
func decideClaim(csr *certificatesv1.CertificateSigningRequest, r *request, c Claim) Decision {
	deny := func(reason, format string, args ...any) Decision {
		return Decision{Action: Deny, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	node := r.nodeName()
	if err := identity.CheckName(node); err != nil {
		return deny("NodeNameInvalid", "%v", err)
	}
	if why := c.revoked(csr); why != "" {
		return deny("Revoked", "%s", why)
	}
	keyHash, err := identity.Verify(csr.Annotations, node, csr.Spec.Request)
	if err != nil {
		return deny("NodeIdentityInvalid", "%v", err)
	}
	self := csr.Spec.Username == r.template.CommonName
	if keyHash == "" && !self {
		// Not an agent of ours: the key that it will use is all that it can be known by.
		public, err := x509.MarshalPKIXPublicKey(r.publicKey)
		if err != nil {
			return deny("NodeIdentityInvalid", "the key of the request cannot be encoded: %v", err)
		}
		keyHash = identity.HashOf(public)
	}
	if !self {
		switch {
		case c.inForce() && c.Record.KeyHash != keyHash:
			return deny(
				"NodeNameTaken",
				"node %s is another machine, or has lost its key; if that machine is gone, delete the Node, "+
					"or run \"everynode node revoke %s\" when it may be in wrong hands, and join again",
				node, node,
			)
		case c.Record == nil && c.NodeExists && c.Revocation == nil:
			return deny(
				"NodeNameTaken",
				"there is a node %s already, and this machine does not have its key; if that machine is gone, "+
					"delete the Node and join again",
				node,
			)
		}
	}
	return Decision{Action: Approve, Reason: "AutoApproved", claim: keyHash, seen: c,
		Message: fmt.Sprintf("%s may have a client certificate for node %s", csr.Spec.Username, node)}
}

// inForce reports whether the name still belongs to the key in the record. Deleting
// the Node frees it.
func (c Claim) inForce() bool {
	return c.Record != nil && (c.NodeExists || (!c.Record.Registered && c.RecordAge < registerPatience))
}
