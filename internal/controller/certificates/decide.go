package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// Ages after which requests are removed.
const (
	answeredAge = time.Hour
	pendingAge  = 24 * time.Hour
	// addressPatience is how long a node may take to report the names and addresses
	// that it wants a certificate for.
	addressPatience = 5 * time.Minute
	addressPause    = time.Second
)

// Action is what to do about a request.
type Action string

// The actions. Each comes with a reason.
const (
	Wait    Action = "wait"    // look again after Decision.After
	Approve Action = "approve" // add the condition Approved
	Sign    Action = "sign"    // issue the certificate
	Deny    Action = "deny"    // add the condition Denied
	Fail    Action = "fail"    // add the condition Failed
	Delete  Action = "delete"  // remove the request
)

// Decision is an action and why.
type Decision struct {
	Action  Action
	Reason  string // one CamelCase word
	Message string
	After   time.Duration // with Wait
	request *request      // with Approve and Sign
	claim   string        // with Approve: the hash of the key that the node's name belongs to,
	seen    Claim         // and what that was decided on
}

// Facts are what a decision needs beside the request itself.
type Facts struct {
	// MayRequest tells that the requester may have this node client certificate
	// without anybody looking.
	MayRequest bool
	// Claim is about the node's name.
	Claim Claim
	// Node is the node that a serving certificate is for, nil if there is none yet.
	Node *corev1.Node
	// Holders names, for each name and address that a serving certificate is to be for,
	// another node that is or reports the same.
	Holders map[string]string
	// Control is what belongs to the control plane.
	Control Control
}

// signers are those whose requests this controller answers.
var signers = []string{
	certificatesv1.KubeAPIServerClientKubeletSignerName,
	certificatesv1.KubeletServingSignerName,
	certificatesv1.KubeAPIServerClientSignerName,
}

// decide says what to do about a request now. facts is asked only when the
// answer depends on it, and with approved only for Claim.
func decide(
	csr *certificatesv1.CertificateSigningRequest, facts func(r *request, approved bool) (Facts, error), now time.Time,
) (Decision, error) {
	if expired, decision := decideAge(csr, now); expired {
		return decision, nil
	}
	remaining := Decision{Action: Wait, Reason: "Answered", After: removalTime(csr).Sub(now)}
	switch {
	case !slices.Contains(signers, csr.Spec.SignerName):
		remaining.Reason = "ForeignSigner"
		return remaining, nil
	case len(csr.Status.Certificate) > 0 || has(csr, certificatesv1.CertificateDenied) ||
		has(csr, certificatesv1.CertificateFailed):
		return remaining, nil
	}
	r, err := parse(csr.Spec)
	if err != nil {
		if csr.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName &&
			!has(csr, certificatesv1.CertificateApproved) {
			// A person will look at it; nothing is signed before that.
			remaining.Reason = "WaitsForApproval"
			return remaining, nil
		}
		return Decision{Action: Fail, Reason: "SignerValidationFailure", Message: err.Error()}, nil
	}
	approved := has(csr, certificatesv1.CertificateApproved)
	if csr.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName {
		if approved {
			return Decision{Action: Sign, Reason: "Approved", request: r}, nil
		}
		remaining.Reason = "WaitsForApproval"
		return remaining, nil
	}
	known, err := facts(r, approved)
	if err != nil {
		return Decision{}, err
	}
	if approved {
		return decideSigning(csr, r, known.Claim, now), nil
	}
	decision := decideApproval(csr, r, known, remaining, now)
	decision.request = r
	return decision, nil
}

// decideSigning looks at an approved request of a node a last time: a revocation may
// have come between.
func decideSigning(csr *certificatesv1.CertificateSigningRequest, r *request, c Claim, now time.Time) Decision {
	if why := c.revoked(csr); why != "" {
		return Decision{Action: Fail, Reason: "Revoked", Message: why}
	}
	if c.Revocation != nil && c.Revocation.Covers(now.Truncate(time.Second)) {
		return Decision{Action: Wait, Reason: "RevocationNotOver", After: c.Revocation.Before.Sub(now) + time.Second}
	}
	return Decision{Action: Sign, Reason: "Approved", request: r}
}

func decideApproval(
	csr *certificatesv1.CertificateSigningRequest, r *request, facts Facts, remaining Decision, now time.Time,
) Decision {
	if csr.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
		if !facts.MayRequest {
			remaining.Reason = "RequesterMayNot"
			return remaining // a person may still approve it
		}
		return decideClaim(csr, r, facts.Claim)
	}
	if why := facts.Claim.revoked(csr); why != "" {
		return Decision{Action: Deny, Reason: "Revoked", Message: why}
	}
	if why := notTheNodes(r, facts); why != "" {
		return Decision{
			Action:  Fail,
			Reason:  "NotTheNodes",
			Message: "a serving certificate is only for the names and addresses of its node: " + why,
		}
	}
	missing := unreported(r, facts.Node)
	if len(missing) == 0 {
		return Decision{Action: Approve, Reason: "AutoApproved",
			Message: fmt.Sprintf("node %s asks for a serving certificate for itself", r.nodeName())}
	}
	if now.Sub(csr.CreationTimestamp.Time) < addressPatience {
		return Decision{Action: Wait, Reason: "NodeReportsOtherAddresses", After: addressPause}
	}
	return Decision{Action: Fail, Reason: "NodeReportsOtherAddresses",
		Message: fmt.Sprintf(
			"node %s does not report %s as its own name or address", r.nodeName(), strings.Join(missing, ", "),
		)}
}

// unreported lists the names and addresses of a request that are not the node's.
func unreported(r *request, node *corev1.Node) []string {
	if node == nil {
		return r.sans
	}
	own := map[string]bool{node.Name: true}
	for _, address := range node.Status.Addresses {
		own[canonical(address.Address)] = true
	}
	return slices.DeleteFunc(slices.Clone(r.sans), func(san string) bool { return own[san] })
}

// canonical gives an IP address the form that it has in a request.
func canonical(address string) string {
	if ip := net.ParseIP(address); ip != nil {
		return ip.String()
	}
	return address
}

// decideAge removes requests that nobody needs any more.
func decideAge(csr *certificatesv1.CertificateSigningRequest, now time.Time) (bool, Decision) {
	if end, ok := certificateEnd(csr); ok && now.After(end) {
		return true, Decision{Action: Delete, Reason: "CertificateExpired"}
	}
	if !now.Before(removalTime(csr)) {
		return true, Decision{Action: Delete, Reason: "TooOld"}
	}
	return false, Decision{}
}

// removalTime is when a request is removed at the latest.
func removalTime(csr *certificatesv1.CertificateSigningRequest) time.Time {
	at := csr.CreationTimestamp.Add(pendingAge)
	approved := false
	for _, condition := range csr.Status.Conditions {
		if condition.Status == corev1.ConditionFalse {
			continue
		}
		if condition.Type == certificatesv1.CertificateApproved {
			approved = true
			if len(csr.Status.Certificate) == 0 {
				continue // still to be signed
			}
		}
		if t := condition.LastUpdateTime.Add(answeredAge); !condition.LastUpdateTime.IsZero() && t.Before(at) {
			at = t
		}
	}
	if len(csr.Status.Certificate) > 0 && !approved {
		return csr.CreationTimestamp.Add(answeredAge)
	}
	return at
}

func certificateEnd(csr *certificatesv1.CertificateSigningRequest) (time.Time, bool) {
	block, _ := pem.Decode(csr.Status.Certificate)
	if block == nil {
		return time.Time{}, false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, false
	}
	return cert.NotAfter, true
}

// has reports whether a condition holds; an empty status counts, as old clients leave it out.
func has(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == kind && c.Status != corev1.ConditionFalse
	})
}
