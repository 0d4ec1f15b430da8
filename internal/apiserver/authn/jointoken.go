package authn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/storage/members"
)

// What a bootstrap token's Secret looks like.
const (
	BootstrapSecretType   = corev1.SecretType("bootstrap.kubernetes.io/token")
	BootstrapSecretPrefix = "bootstrap-token-"

	keyTokenID     = "token-id"
	keyTokenSecret = "token-secret"
	keyExpiration  = "expiration"
	keyDescription = "description"
	keyExtraGroups = "auth-extra-groups"
	keyUsageAuth   = "usage-bootstrap-authentication"
	// keySecretHash is in place of the secret in tokens for servers, keyUsedBy the server
	// that has joined with one.
	keySecretHash = "token-secret-sha256"
	keyUsedBy     = "used-by"

	tokenIDLength     = 6
	tokenSecretLength = 16
	hashLength        = 64
	tokenAlphabet     = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// ErrMalformedToken says what a token must look like; it never holds the token.
var ErrMalformedToken = errors.New("the token is not of the form ID.SECRET or ID.SECRET.CAHASH " +
	"(6 and 16 characters of a-z and 0-9, then 64 of 0-9 and a-f)")

// JoinToken lets a node join the cluster.
type JoinToken struct {
	ID     string // public, names the Secret
	Secret string
	// CAHash is the lowercase hex SHA-256 of the cluster CA's certificate in DER
	// form; empty in a plain bootstrap token.
	CAHash string
}

// ParseJoinToken reads ID.SECRET or ID.SECRET.CAHASH.
func ParseJoinToken(text string) (JoinToken, error) {
	parts := strings.Split(text, ".")
	if len(parts) < 2 || len(parts) > 3 || !isTokenPart(parts[0], tokenIDLength) ||
		!isTokenPart(parts[1], tokenSecretLength) {
		return JoinToken{}, ErrMalformedToken
	}
	token := JoinToken{ID: parts[0], Secret: parts[1]}
	if len(parts) == 3 {
		if !isHash(parts[2]) {
			return JoinToken{}, ErrMalformedToken
		}
		token.CAHash = parts[2]
	}
	return token, nil
}

// Bootstrap is the part that is sent to the server: ID.SECRET.
func (t JoinToken) Bootstrap() string { return t.ID + "." + t.Secret }

// Text is the whole token as it is given to people.
func (t JoinToken) Text() string {
	if t.CAHash == "" {
		return t.Bootstrap()
	}
	return t.Bootstrap() + "." + t.CAHash
}

// String hides the secret, so that a token in a log gives nothing away.
func (t JoinToken) String() string { return t.ID + ".***" }

// NewBootstrapToken makes a token and the Secret that lets the server accept it
// until now+ttl. A ttl of zero makes a token without end.
func NewBootstrapToken(now time.Time, ttl time.Duration, description string) (*corev1.Secret, JoinToken, error) {
	id, err := randomText(tokenIDLength)
	if err != nil {
		return nil, JoinToken{}, err
	}
	secret, err := randomText(tokenSecretLength)
	if err != nil {
		return nil, JoinToken{}, err
	}
	data := map[string][]byte{
		keyTokenID:     []byte(id),
		keyTokenSecret: []byte(secret),
		keyUsageAuth:   []byte("true"),
	}
	if ttl > 0 {
		data[keyExpiration] = []byte(now.Add(ttl).UTC().Format(time.RFC3339))
	}
	if description != "" {
		data[keyDescription] = []byte(description)
	}
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: BootstrapSecretPrefix + id},
		Type:       BootstrapSecretType,
		Data:       data,
	}
	return object, JoinToken{ID: id, Secret: secret}, nil
}

// NewServerToken makes a token with which one server joins, and its Secret. That has only
// a hash: whoever may read Secrets would otherwise get all keys of the cluster with it.
func NewServerToken(now time.Time, ttl time.Duration, description string) (*corev1.Secret, JoinToken, error) {
	object, token, err := NewBootstrapToken(now, ttl, description)
	if err != nil {
		return nil, JoinToken{}, err
	}
	delete(object.Data, keyTokenSecret)
	object.Data[keySecretHash] = []byte(token.hash())
	object.Data[keyExtraGroups] = []byte(members.Group)
	return object, token, nil
}

// hash is what a Secret has of a token for servers. The token is random, so one round
// of SHA-256 is enough.
func (t JoinToken) hash() string {
	sum := sha256.Sum256([]byte(t.Bootstrap()))
	return hex.EncodeToString(sum[:])
}

// IsForServers reports whether a Secret is that of a token with which a server joins.
func IsForServers(secret *corev1.Secret) bool {
	return secret.Type == BootstrapSecretType && slices.Contains(ExtraGroups(secret), members.Group)
}

// IsReadable reports whether the token can be read in its Secret.
func IsReadable(secret *corev1.Secret) bool { return len(secret.Data[keyTokenSecret]) > 0 }

// UseBy writes into the Secret of a token for servers which one joins with it. It reports
// whether that was new, and refuses any other server from then on.
func UseBy(secret *corev1.Secret, server string) (changed bool, err error) {
	switch by := string(secret.Data[keyUsedBy]); by {
	case server:
		return false, nil
	case "":
		secret.Data[keyUsedBy] = []byte(server)
		return true, nil
	default:
		return false, fmt.Errorf("a token is good for one server, and %s has used it; "+
			"make another one with \"everynode token create --server\"", by)
	}
}

// TokenID is the ID of the join token that a user of the API is; empty for anybody else.
func TokenID(user string) string {
	id, _ := strings.CutPrefix(user, BootstrapUserPrefix)
	if !isTokenPart(id, tokenIDLength) || id == user {
		return ""
	}
	return id
}

func isTokenPart(text string, length int) bool {
	if len(text) != length {
		return false
	}
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func isHash(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == hashLength && text == strings.ToLower(text)
}

func randomText(length int) (string, error) {
	text := make([]byte, length)
	size := big.NewInt(int64(len(tokenAlphabet)))
	for i := range text {
		n, err := rand.Int(rand.Reader, size)
		if err != nil {
			return "", fmt.Errorf("make a random token: %w", err)
		}
		text[i] = tokenAlphabet[n.Int64()]
	}
	return string(text), nil
}
