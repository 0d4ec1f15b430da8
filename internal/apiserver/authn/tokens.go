package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"
)

// maxTokenLength is above any token that is issued here and keeps a hostile
// header from costing much.
const maxTokenLength = 16 << 10

// Tokens issues and accepts service account tokens.
type Tokens struct {
	issuers   []string // the first one issues
	audiences authenticator.Audiences
	longest   time.Duration
	keys      Keys
	getters   Getters
	clock     clock.PassiveClock
}

var _ authenticator.Token = &Tokens{}

// Keys are those of the tokens, as they are now: ECDSA keys on P-256.
type Keys interface {
	// ServiceAccountKey signs.
	ServiceAccountKey() *ecdsa.PrivateKey
	// ServiceAccountKeys verify; that of ServiceAccountKey is the first.
	ServiceAccountKeys() []*ecdsa.PublicKey
}

// TokensConfig says how tokens are made.
type TokensConfig struct {
	Keys Keys
	// Issuers may have issued a token; the first one issues new ones.
	Issuers []string
	// Audiences are those of this API server; the issuers unless set.
	Audiences []string
	// Longest is how long a token is good for at most; 0 for as long as is asked for.
	Longest time.Duration
	// Getters reads the bound objects.
	Getters Getters
	// Clock is the real clock unless set.
	Clock clock.PassiveClock
}

// NewTokens checks the configuration and makes Tokens.
func NewTokens(config TokensConfig) (*Tokens, error) {
	if config.Keys == nil || config.Getters == nil {
		return nil, errors.New("service account tokens need a key and a way to read objects")
	}
	if len(config.Issuers) == 0 {
		return nil, errors.New("service account tokens need an issuer")
	}
	if len(config.Audiences) == 0 {
		config.Audiences = config.Issuers
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	t := &Tokens{
		issuers:   config.Issuers,
		audiences: config.Audiences,
		longest:   config.Longest,
		keys:      config.Keys,
		getters:   config.Getters,
		clock:     config.Clock,
	}
	_, err := t.signer()
	return t, err
}

// signer signs with the present key.
func (t *Tokens) signer() (jose.Signer, error) {
	key := t.keys.ServiceAccountKey()
	keyID, err := keyIDOf(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{
		Key: key, KeyID: keyID, Algorithm: string(jose.ES256),
	}}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a signer of service account tokens: %w", err)
	}
	return signer, nil
}

// verify reads the claims of a token if one of the keys signed it.
func (t *Tokens) verify(token *jwt.JSONWebToken) (c claims, err error) {
	for _, key := range t.keys.ServiceAccountKeys() {
		c = claims{}
		if err = token.Claims(key, &c); err == nil {
			return c, nil
		}
	}
	return claims{}, fmt.Errorf("verify service account token: %w", err)
}

// Audiences are those of this API server.
func (t *Tokens) Audiences() authenticator.Audiences { return slices.Clone(t.audiences) }

// Issued is a signed token.
type Issued struct {
	Token   string
	ID      string // the credential id in audit records and in the user's extra data
	Expires time.Time
}

// Generate issues a token for an account that ends after ttl. Without audiences
// it is for this API server.
func (t *Tokens) Generate(account *corev1.ServiceAccount, bound Binding, audiences []string,
	ttl time.Duration) (Issued, error) {
	if len(audiences) == 0 {
		audiences = t.audiences
	}
	signer, err := t.signer()
	if err != nil {
		return Issued{}, err
	}
	c := newClaims(t.issuers[0], uuid.NewString(), account, bound, audiences, t.clock.Now(), ttl)
	token, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		return Issued{}, fmt.Errorf("sign a token for service account %s/%s: %w", account.Namespace, account.Name, err)
	}
	return Issued{Token: token, ID: c.ID, Expires: c.Expiry.Time()}, nil
}

// AuthenticateToken implements authenticator.Token. A token of another issuer is
// left to others; one of this issuer that is not valid gives an error.
func (t *Tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if len(token) > maxTokenLength {
		return nil, false, nil
	}
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, false, nil //nolint:nilerr // not a token of this kind
	}
	var c claims
	if err := parsed.UnsafeClaimsWithoutVerification(&c); err != nil || !slices.Contains(t.issuers, c.Issuer) {
		return nil, false, nil //nolint:nilerr // not a token of this issuer
	}
	if c, err = t.verify(parsed); err != nil {
		return nil, false, err
	}
	now := t.clock.Now()
	if err := c.check(t.issuers, now); err != nil {
		return nil, false, err
	}
	wanted, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		wanted = t.audiences
	}
	matching := authenticator.Audiences(c.Audience).Intersect(wanted)
	if len(matching) == 0 {
		return nil, false, fmt.Errorf(
			"token audiences %q is invalid for the target audiences %q", []string(c.Audience), []string(wanted),
		)
	}
	if err := t.checkObjects(ctx, c.Kubernetes, now); err != nil {
		return nil, false, fmt.Errorf("service account token is void: %w", err)
	}
	return &authenticator.Response{User: userOf(&c).UserInfo(), Audiences: matching}, true, nil
}

func (t *Tokens) checkObjects(ctx context.Context, k bindings, now time.Time) error {
	account, err := t.getters.GetServiceAccount(ctx, k.Namespace, k.ServiceAccount.Name)
	if err := stands("service account", k.ServiceAccount, account, err, now); err != nil {
		return err
	}
	if k.Secret != nil {
		secret, err := t.getters.GetSecret(ctx, k.Namespace, k.Secret.Name)
		if err := stands("secret", *k.Secret, secret, err, now); err != nil {
			return err
		}
	}
	if k.Pod != nil {
		pod, err := t.getters.GetPod(ctx, k.Namespace, k.Pod.Name)
		return stands("pod", *k.Pod, pod, err, now) // its node is told, not checked
	}
	if k.Node != nil {
		node, err := t.getters.GetNode(ctx, k.Node.Name)
		return stands("node", *k.Node, node, err, now)
	}
	return nil
}

func stands(kind string, want reference, got metav1.Object, err error, now time.Time) error {
	if err != nil {
		return fmt.Errorf("look up %s %q: %w", kind, want.Name, err)
	}
	return checkBound(kind, want, got, now)
}

func userOf(c *claims) *serviceaccount.ServiceAccountInfo {
	k := c.Kubernetes
	info := &serviceaccount.ServiceAccountInfo{
		Namespace: k.Namespace, Name: k.ServiceAccount.Name, UID: string(k.ServiceAccount.UID),
		CredentialID: "JTI=" + c.ID,
	}
	if k.Pod != nil {
		info.PodName, info.PodUID = k.Pod.Name, string(k.Pod.UID)
	}
	if k.Node != nil {
		info.NodeName, info.NodeUID = k.Node.Name, string(k.Node.UID)
	}
	return info
}

// keyIDOf is the base64 of the public key's SHA-256.
func keyIDOf(key *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode the service account key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}
