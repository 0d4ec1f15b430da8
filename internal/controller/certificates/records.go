package certificates

import (
	"context"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/pki"
)

// bootstrapUserPrefix begins the name of whoever shows a join token;
// bootstrapSecretPrefix the name of the token's Secret.
const (
	bootstrapUserPrefix   = "system:bootstrap:"
	bootstrapSecretPrefix = "bootstrap-token-"
)

func (r *reconciler) secrets() typedcorev1.SecretInterface {
	return r.Client.CoreV1().Secrets(metav1.NamespaceSystem)
}

// claim reads what is known about the name of a node, from the database: what is
// decided on old news could give a name to two machines.
func (r *reconciler) claim(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	node string) (c Claim, err error) {
	if identity.CheckName(node) != nil {
		return Claim{}, nil
	}
	record, made, err := r.record(ctx, node)
	if err != nil {
		return Claim{}, err
	}
	if made != nil {
		c.secret, c.Record, c.RecordAge = made, &record, r.Clock.Now().Sub(made.CreationTimestamp.Time)
	}
	c.Revocation, err = r.revocation(ctx, node)
	if err != nil {
		return Claim{}, err
	}
	if id, ok := strings.CutPrefix(csr.Spec.Username, bootstrapUserPrefix); ok && c.Revocation != nil {
		// A token that is gone is as old as time.
		c.TokenMade = time.Unix(1, 0)
		token, err := r.secrets().Get(ctx, bootstrapSecretPrefix+id, metav1.GetOptions{})
		if err == nil {
			c.TokenMade = token.CreationTimestamp.Time
		} else if !apierrors.IsNotFound(err) {
			return Claim{}, fmt.Errorf("look at the join token %s: %w", id, err)
		}
	}
	if strings.HasPrefix(csr.Spec.Username, nodeUserPrefix) {
		return c, nil // Nodes prove who they are otherwise.
	}
	_, err = r.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return Claim{}, fmt.Errorf("look for node %s: %w", node, err)
	}
	c.NodeExists = err == nil
	return c, nil
}

// record reads a node's record and its Secret, which is nil when there is none.
func (r *reconciler) record(ctx context.Context, node string) (identity.Record, *corev1.Secret, error) {
	secret, err := r.secrets().Get(ctx, identity.RecordName(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return identity.Record{}, nil, nil
	}
	if err != nil {
		return identity.Record{}, nil, fmt.Errorf("read whom the name of node %s belongs to: %w", node, err)
	}
	record, err := identity.ReadRecord(secret)
	return record, secret, err
}

func (r *reconciler) revocation(ctx context.Context, node string) (*identity.Revocation, error) {
	secret, err := r.secrets().Get(ctx, identity.RevocationName(node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read whether the certificates of node %s were revoked: %w", node, err)
	}
	revocation, err := identity.ReadRevocation(secret)
	return &revocation, err
}

// keep writes down that the name of a node belongs to a key. The decision was made on
// what was seen; of two that claim a name at once the second gets an error here and
// is decided on again.
func (r *reconciler) keep(ctx context.Context, node, keyHash string, seen Claim) error {
	if keyHash == "" || (seen.Record != nil && seen.Record.KeyHash == keyHash) {
		return nil
	}
	var err error
	if seen.Record != nil {
		// Not in force any more. What was known of the other machine goes with it.
		err = r.secrets().Delete(ctx, identity.RecordName(node), metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &seen.secret.UID, ResourceVersion: &seen.secret.ResourceVersion},
		})
	}
	if err == nil {
		secret := &corev1.Secret{}
		identity.Record{Node: node, KeyHash: keyHash}.Write(secret)
		_, err = r.secrets().Create(ctx, secret, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("write down whom the name of node %s belongs to: %w", node, err)
	}
	return nil
}

// tellCameBack says that a node has come back of which nothing was written down although it has a
// certificate: the backup from which the cluster was restored is older than the node. Whether it
// was revoked since nobody knows any more but those who did it.
func (r *reconciler) tellCameBack(csr *certificatesv1.CertificateSigningRequest, d Decision) {
	if !r.Restored || r.Events == nil || d.claim == "" || d.seen.Record != nil ||
		!strings.HasPrefix(csr.Spec.Username, nodeUserPrefix) {
		return
	}
	node := d.request.nodeName()
	// which is what kubectl describe looks for
	about := &corev1.ObjectReference{Kind: "Node", Name: node, UID: types.UID(node)}
	r.Events.Eventf(about, corev1.EventTypeWarning, "CameBackAfterRestore",
		"The backup from which this control plane was restored does not know node %s, which has a certificate of the "+
			"cluster and came back. If it was revoked or deleted since the backup, "+
			"run \"everynode node revoke %s\" again", node, node)
}

// noteSigned writes down which authority signs a certificate of a node, so that it
// can be seen who still has one of an authority that is to go.
func (r *reconciler) noteSigned(ctx context.Context, node string, serving bool) error {
	record, secret, err := r.record(ctx, node)
	if err != nil || secret == nil {
		return err
	}
	before := record
	if serving {
		record.Registered, record.ServingIssuer = true, pki.HashOf(r.NodeSigner.Authority())
	} else {
		record.ClientIssuer = pki.HashOf(r.Signer.Authority())
	}
	if record == before {
		return nil
	}
	record.Write(secret)
	if _, err := r.secrets().Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write down who signed a certificate of node %s: %w", node, err)
	}
	return nil
}

// sweep removes the records of nodes that are gone and revocations of certificates
// that have ended.
func (r *reconciler) sweep(ctx context.Context) error {
	now := r.Clock.Now()
	list := func(kind corev1.SecretType) ([]corev1.Secret, error) {
		found, err := r.secrets().List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(kind)})
		if err != nil {
			return nil, fmt.Errorf("list the secrets of type %s: %w", kind, err)
		}
		return found.Items, nil
	}
	remove := func(s *corev1.Secret) error {
		preconditions := &metav1.Preconditions{UID: ptrTo(s.UID), ResourceVersion: ptrTo(s.ResourceVersion)}
		err := r.secrets().Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: preconditions})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // something happened to it: next time
		}
		return err
	}
	records, err := list(identity.RecordType)
	if err != nil {
		return err
	}
	for _, secret := range records {
		record, err := identity.ReadRecord(&secret)
		if err != nil || now.Sub(secret.CreationTimestamp.Time) < registerPatience {
			continue
		}
		if _, err = r.Client.CoreV1().Nodes().Get(ctx, record.Node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			continue
		}
		if err := remove(&secret); err != nil {
			return fmt.Errorf("remove the record of node %s, which is gone: %w", record.Node, err)
		}
	}
	revocations, err := list(identity.RevocationType)
	if err != nil {
		return err
	}
	for _, secret := range revocations {
		revocation, err := identity.ReadRevocation(&secret)
		if err != nil || now.Sub(revocation.Before) < maxTTL+2*pki.Backdate {
			continue
		}
		if err := remove(&secret); err != nil {
			return fmt.Errorf("remove the revocation of node %s, which covers nothing any more: %w", revocation.Node, err)
		}
	}
	return nil
}

func ptrTo[T types.UID | string](v T) *T { return &v }
