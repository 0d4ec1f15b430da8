package volumes

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// defaultTokenSeconds is a token's life when the projection doesn't say.
	defaultTokenSeconds = 3600
	// maxTokenAge is when even a long-lived token is replaced.
	maxTokenAge = 24 * time.Hour
	// tokenPatience is how long a new token is waited for when there is an old one.
	tokenPatience = 5 * time.Second
)

// addToken adds a service account's token, bound to the pod. Who may read it: the group of the pod's volumes, or the
// one user that all of its containers run as, or else everybody in the pod, as the default mode says.
func (g *gathering) addToken(ctx context.Context, source *corev1.ServiceAccountTokenProjection) error {
	key := tokenKey{pod: g.pod.UID, audience: source.Audience, seconds: defaultTokenSeconds}
	if source.ExpirationSeconds != nil {
		key.seconds = *source.ExpirationSeconds
	}
	token, err := g.manager.tokens.get(ctx, g.pod, key)
	if err != nil {
		return err
	}
	f := file{data: []byte(token), mode: g.defaultMode, uid: onlyUser(g.pod)}
	if f.uid != nil || fsGroup(g.pod) != nil {
		f.mode = 0o600
	}
	g.content[source.Path] = f
	return nil
}

// onlyUser is the user that every container of pod runs as; nil when one doesn't say or they differ.
func onlyUser(pod *corev1.Pod) *int64 {
	var fallback, only *int64
	if pod.Spec.SecurityContext != nil {
		fallback = pod.Spec.SecurityContext.RunAsUser
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			user := fallback
			if sc := containers[i].SecurityContext; sc != nil && sc.RunAsUser != nil {
				user = sc.RunAsUser
			}
			if user == nil || only != nil && *only != *user {
				return nil
			}
			only = user
		}
	}
	return only
}

// tokenKey tells one token of a pod from another; a pod has one service account all its life.
type tokenKey struct {
	pod      types.UID
	audience string
	seconds  int64
}

// tokenCache keeps tokens until they have used up most of their life.
type tokenCache struct {
	objects Objects
	clock   clock.PassiveClock
	issued  func(first bool)

	mu     sync.Mutex
	tokens map[tokenKey]issuedToken
}

// issuedToken is a token and when it was got and ends.
type issuedToken struct {
	text             string
	issued, deadline time.Time
}

// Token is a service account's token that a pod has in a volume.
type Token struct {
	Pod          types.UID
	Audience     string
	Seconds      int64
	Text         string
	Issued, Ends time.Time
}

func newTokenCache(cfg Config) *tokenCache {
	c := &tokenCache{objects: cfg.Objects, clock: cfg.Clock, issued: cfg.TokenIssued, tokens: map[tokenKey]issuedToken{}}
	for _, t := range cfg.Tokens {
		c.tokens[tokenKey{t.Pod, t.Audience, t.Seconds}] = issuedToken{t.Text, t.Issued, t.Ends}
	}
	return c
}

// Tokens are those that pods of the node have.
func (m *Manager) Tokens() []Token {
	c := m.tokens
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Token, 0, len(c.tokens))
	for k, t := range c.tokens {
		out = append(out, Token{
			Pod:      k.pod,
			Audience: k.audience,
			Seconds:  k.seconds,
			Text:     t.text,
			Issued:   t.issued,
			Ends:     t.deadline,
		})
	}
	return out
}

// get returns a token that is good for a while. When a new one can't be had, the old one serves until it ends; and also
// after that if nobody answers: a token is of no use without an API server, and no reason to keep a pod from starting.
func (c *tokenCache) get(ctx context.Context, pod *corev1.Pod, key tokenKey) (string, error) {
	now := c.clock.Now()
	c.mu.Lock()
	token, ok := c.tokens[key]
	c.mu.Unlock()
	if ok && !token.aging(now) {
		return token.text, nil
	}
	request := ctx
	if ok {
		var cancel context.CancelFunc
		request, cancel = context.WithTimeout(ctx, tokenPatience)
		defer cancel()
	}
	fresh, err := c.request(request, pod, key)
	switch {
	case err == nil:
	case ok &&
		(now.Before(token.deadline) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && ctx.Err() == nil):
		klog.FromContext(ctx).Error(
			err, "Keeping the old service account token", "pod", klog.KObj(pod), "expires", token.deadline,
		)
		return token.text, nil
	default:
		return "", err
	}
	c.mu.Lock()
	c.tokens[key] = fresh
	c.mu.Unlock()
	if c.issued != nil {
		c.issued(!ok)
	}
	return fresh.text, nil
}

func (c *tokenCache) request(ctx context.Context, pod *corev1.Pod, key tokenKey) (issuedToken, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &key.seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       pod.Name,
			UID:        pod.UID,
		},
	}}
	if key.audience != "" {
		request.Spec.Audiences = []string{key.audience}
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	now := c.clock.Now()
	answer, err := c.objects.ServiceAccountToken(ctx, pod.Namespace, account, request)
	if err != nil {
		return issuedToken{}, fmt.Errorf("failed to fetch token: %w", err)
	}
	life := time.Duration(key.seconds) * time.Second
	if granted := answer.Spec.ExpirationSeconds; granted != nil {
		life = time.Duration(*granted) * time.Second
	}
	deadline := answer.Status.ExpirationTimestamp.Time
	if left := deadline.Sub(now); left <= 0 || left > life {
		deadline = now.Add(life) // by the clock of this machine, which is another than the server's
	}
	return issuedToken{text: answer.Status.Token, issued: now, deadline: deadline}, nil
}

// setBack is by how much a clock may be set back before the age of what was issued is no longer known.
const setBack = time.Minute

// aging is true when four fifths of the token's life are over, or a day, or when the clock was set back.
func (t issuedToken) aging(now time.Time) bool {
	if now.Before(t.issued.Add(-setBack)) {
		return true
	}
	life := t.deadline.Sub(t.issued)
	return now.After(t.issued.Add(maxTokenAge)) || now.After(t.issued.Add(life/5*4))
}

// forget drops the tokens of a pod.
func (c *tokenCache) forget(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.tokens {
		if key.pod == pod {
			delete(c.tokens, key)
		}
	}
}
