package authn

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Names of the users that bootstrap tokens stand for.
const (
	BootstrapUserPrefix = "system:bootstrap:"
	BootstrapGroup      = "system:bootstrappers"
)

// Extra groups may only be below system:bootstrappers, so that a Secret cannot
// make anybody a member of a stronger group.
var extraGroupPattern = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)

// bootstrapTokens accepts the tokens whose Secrets lie in kube-system.
type bootstrapTokens struct {
	secrets SecretGetter
	clock   clock.PassiveClock
}

// NewBootstrapTokens makes an authenticator of bootstrap tokens.
func NewBootstrapTokens(secrets SecretGetter, c clock.PassiveClock) authenticator.Token {
	return &bootstrapTokens{secrets: secrets, clock: c}
}

// AuthenticateToken implements authenticator.Token. A token that is not of the
// right form is left to others; one that is refused is not explained to the
// sender, only to the log.
func (b *bootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	sent, err := ParseJoinToken(token)
	if err != nil || sent.CAHash != "" {
		return nil, false, nil
	}
	secret, err := b.secrets.GetSecret(ctx, metav1.NamespaceSystem, BootstrapSecretPrefix+sent.ID)
	if apierrors.IsNotFound(err) {
		klog.FromContext(ctx).V(3).Info("Refused a bootstrap token", "tokenID", sent.ID, "reason", "no such token")
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read bootstrap token %s: %w", sent.ID, err)
	}
	groups, err := checkBootstrapSecret(secret, sent, b.clock.Now())
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Refused a bootstrap token", "tokenID", sent.ID, "reason", err.Error())
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: BootstrapUserPrefix + sent.ID, Groups: groups}}, true, nil
}

// checkBootstrapSecret decides whether a Secret lets the sent token in, and into
// which groups. The secrets are compared in constant time.
func checkBootstrapSecret(secret *corev1.Secret, sent JoinToken, now time.Time) (groups []string, err error) {
	if secret.DeletionTimestamp != nil {
		return nil, errors.New("the token is being deleted")
	}
	if secret.Type != BootstrapSecretType {
		return nil, fmt.Errorf("the Secret is of type %q", secret.Type)
	}
	if string(secret.Data[keyTokenID]) != sent.ID {
		return nil, errors.New("the Secret holds another token-id")
	}
	if err := checkSecret(secret, sent); err != nil {
		return nil, err
	}
	if expired, err := bootstrapSecretExpired(secret, now); expired || err != nil {
		return nil, errors.Join(errors.New("the token has expired"), err)
	}
	if string(secret.Data[keyUsageAuth]) != "true" {
		return nil, errors.New("the token is not for authentication")
	}
	groups = append([]string{BootstrapGroup}, ExtraGroups(secret)...)
	for _, group := range groups[1:] {
		if !extraGroupPattern.MatchString(group) {
			return nil, fmt.Errorf("the extra group %q is not allowed", group)
		}
	}
	return groups, nil
}

// checkSecret compares what was sent with what is stored: a hash of a token for servers,
// of others the secret itself, as in Kubernetes.
func checkSecret(secret *corev1.Secret, sent JoinToken) error {
	stored, want := secret.Data[keyTokenSecret], sent.Secret
	if IsForServers(secret) {
		if IsReadable(secret) {
			return errors.New("it is for servers, and whoever reads its Secret has it")
		}
		stored, want = secret.Data[keySecretHash], sent.hash()
	}
	if subtle.ConstantTimeCompare(stored, []byte(want)) != 1 {
		return errors.New("the secret is wrong")
	}
	return nil
}

// ExtraGroups are the groups that a bootstrap token's Secret names.
func ExtraGroups(secret *corev1.Secret) (groups []string) {
	for group := range strings.SplitSeq(string(secret.Data[keyExtraGroups]), ",") {
		if group = strings.TrimSpace(group); group != "" {
			groups = append(groups, group)
		}
	}
	return groups
}

// bootstrapSecretExpired treats an end that cannot be read as passed.
func bootstrapSecretExpired(secret *corev1.Secret, now time.Time) (bool, error) {
	text := string(secret.Data[keyExpiration])
	if text == "" {
		return false, nil
	}
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return true, fmt.Errorf("read the expiration: %w", err)
	}
	return !now.Before(end), nil
}
