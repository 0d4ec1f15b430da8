package identity

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What the Secrets look like, all in kube-system.
const (
	RecordType     = corev1.SecretType("everynode.io/node-identity")
	RevocationType = corev1.SecretType("everynode.io/node-revocation")

	recordPrefix     = "node-identity-"
	revocationPrefix = "node-revocation-"

	nodeKey          = "node"
	hashKey          = "key-sha256"
	registeredKey    = "registered"
	clientIssuerKey  = "client-issuer-sha256"
	servingIssuerKey = "serving-issuer-sha256"
	beforeKey        = "revoked-before"
)

// maxName is what a node's name may have so that its Secrets have names.
const maxName = 253 - len(revocationPrefix)

// Record is what the control plane knows about the identity of a node.
type Record struct {
	Node string
	// KeyHash is that of the key that the name belongs to.
	KeyHash string
	// Registered tells that the Node was seen after the machine had joined.
	Registered bool
	// ClientIssuer and ServingIssuer are the hashes of the authorities that signed the
	// node's newest certificates.
	ClientIssuer, ServingIssuer string
}

// CheckName says why a node of that name cannot be written down.
func CheckName(node string) error {
	if problems := validation.IsDNS1123Subdomain(node); len(problems) > 0 && len(node) <= maxName {
		return fmt.Errorf("%q cannot be the name of a node: %s", node, problems[0])
	}
	if len(node) > maxName {
		return fmt.Errorf("the node's name has %d characters, at most %d are possible", len(node), maxName)
	}
	return nil
}

// RecordName is the name of the Secret for a node.
func RecordName(node string) string { return recordPrefix + node }

// RevocationName is the name of the Secret that says that a node's certificates are refused.
func RevocationName(node string) string { return revocationPrefix + node }

// Write puts the record into its Secret.
func (r Record) Write(into *corev1.Secret) {
	into.Namespace, into.Name, into.Type = metav1.NamespaceSystem, RecordName(r.Node), RecordType
	into.Data = map[string][]byte{nodeKey: []byte(r.Node), hashKey: []byte(r.KeyHash)}
	for key, value := range map[string]string{clientIssuerKey: r.ClientIssuer, servingIssuerKey: r.ServingIssuer} {
		if value != "" {
			into.Data[key] = []byte(value)
		}
	}
	if r.Registered {
		into.Data[registeredKey] = []byte("true")
	}
}

// ReadRecord reads a record.
func ReadRecord(from *corev1.Secret) (Record, error) {
	r := Record{
		Node: string(from.Data[nodeKey]), KeyHash: string(from.Data[hashKey]),
		Registered:   string(from.Data[registeredKey]) == "true",
		ClientIssuer: string(from.Data[clientIssuerKey]), ServingIssuer: string(from.Data[servingIssuerKey]),
	}
	if from.Type != RecordType || r.Node == "" || r.KeyHash == "" || from.Name != RecordName(r.Node) {
		return Record{}, fmt.Errorf("secret %s/%s is not the record of a node's identity", from.Namespace, from.Name)
	}
	return r, nil
}

// Revocation refuses the certificates of a node that were issued before a moment.
type Revocation struct {
	Node   string
	Before time.Time
}

// Secret is how a revocation is kept.
func (r Revocation) Secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: RevocationName(r.Node)}, Type: RevocationType,
		Data: map[string][]byte{nodeKey: []byte(r.Node), beforeKey: []byte(r.Before.UTC().Format(time.RFC3339))},
	}
}

// ReadRevocation reads a revocation.
func ReadRevocation(from *corev1.Secret) (Revocation, error) {
	r := Revocation{Node: string(from.Data[nodeKey])}
	if from.Type != RevocationType || r.Node == "" || from.Name != RevocationName(r.Node) {
		return Revocation{}, fmt.Errorf("secret %s/%s is not a revocation", from.Namespace, from.Name)
	}
	var err error
	r.Before, err = time.Parse(time.RFC3339, string(from.Data[beforeKey]))
	if err != nil {
		return Revocation{}, errors.Join(fmt.Errorf("secret %s/%s says no time", from.Namespace, from.Name), err)
	}
	return r, nil
}

// Covers reports whether a certificate that was issued at that moment is refused.
func (r Revocation) Covers(issued time.Time) bool { return issued.Before(r.Before) }
