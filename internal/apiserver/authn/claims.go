package authn

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// claims is the content of a service account token.
type claims struct {
	jwt.Claims
	Kubernetes bindings `json:"kubernetes.io"`
}

// bindings names the objects that a token lives and dies with.
type bindings struct {
	Namespace      string     `json:"namespace"`
	ServiceAccount reference  `json:"serviceaccount"`
	Pod            *reference `json:"pod,omitempty"`
	Secret         *reference `json:"secret,omitempty"`
	Node           *reference `json:"node,omitempty"`
}

type reference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

// Binding is what a token is issued for, beside the account itself: at most one
// of Pod, Secret and Node, or a Pod with its Node.
type Binding struct {
	Pod    *corev1.Pod
	Secret *corev1.Secret
	Node   *corev1.Node
}

// deletedLeeway is how long a token outlives the deletion mark of its object: a
// pod that shuts down may still need the API.
const deletedLeeway = time.Minute

// clockLeeway allows for clocks that differ between servers.
const clockLeeway = 10 * time.Second

var errForeignToken = errors.New("the token is not of this issuer")

// newClaims is the content of a token; id becomes its credential id.
func newClaims(
	issuer, id string, account *corev1.ServiceAccount, bound Binding, audiences []string, now time.Time, ttl time.Duration,
) claims {
	c := claims{
		Claims: jwt.Claims{
			Issuer:    issuer,
			Subject:   serviceaccount.MakeUsername(account.Namespace, account.Name),
			Audience:  jwt.Audience(audiences),
			Expiry:    jwt.NewNumericDate(now.Add(ttl)),
			NotBefore: jwt.NewNumericDate(now),
			IssuedAt:  jwt.NewNumericDate(now),
			ID:        id,
		},
		Kubernetes: bindings{
			Namespace:      account.Namespace,
			ServiceAccount: reference{Name: account.Name, UID: account.UID},
		},
	}
	if p := bound.Pod; p != nil {
		c.Kubernetes.Pod = &reference{Name: p.Name, UID: p.UID}
	}
	if s := bound.Secret; s != nil {
		c.Kubernetes.Secret = &reference{Name: s.Name, UID: s.UID}
	}
	if n := bound.Node; n != nil {
		c.Kubernetes.Node = &reference{Name: n.Name, UID: n.UID}
	}
	return c
}

// check looks at everything that the token says about itself.
func (c *claims) check(issuers []string, now time.Time) error {
	if !slices.Contains(issuers, c.Issuer) {
		return errForeignToken
	}
	if c.Expiry == nil || c.NotBefore == nil {
		return errors.New("the token has no validity period")
	}
	if now.After(c.Expiry.Time()) {
		return errors.New("service account token has expired")
	}
	if now.Add(clockLeeway).Before(c.NotBefore.Time()) {
		return errors.New("service account token is not valid yet")
	}
	k := c.Kubernetes
	if k.Namespace == "" || k.ServiceAccount.Name == "" || k.ServiceAccount.UID == "" {
		return errors.New("the token names no service account")
	}
	if c.Subject != serviceaccount.MakeUsername(k.Namespace, k.ServiceAccount.Name) {
		return errors.New("the token's subject is not its service account")
	}
	return nil
}

// checkBound reports whether an object that a token is bound to still stands.
func checkBound(kind string, want reference, got metav1.Object, now time.Time) error {
	if got.GetUID() != want.UID {
		return fmt.Errorf("%s %q is another one now than when the token was issued", kind, want.Name)
	}
	if deleted := got.GetDeletionTimestamp(); deleted != nil && now.After(deleted.Add(deletedLeeway)) {
		return fmt.Errorf("%s %q has been deleted", kind, want.Name)
	}
	return nil
}
