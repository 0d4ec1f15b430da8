package volumes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/volumes/renewal"
)

const (
	// defaultTokenSeconds is a token's life when the projection doesn't say.
	defaultTokenSeconds = 3600
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
	f := file{data: []byte(token), mode: g.defaultMode, uid: onlyUser(g.pod), own: true}
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
	// away is for how long nobody is asked to replace a token, because nobody answered.
	away renewal.Pause
}

// issuedToken is a token and when it was got and ends.
type issuedToken struct {
	text             string
	issued, deadline time.Time
	// refused is for how long no other one is asked for, and why, because the server gave none.
	refused renewal.Pause
	why     error
}

// share is that of a token in what is spread over time.
func (k tokenKey) share(of ...string) float64 {
	return renewal.Share(append(of, string(k.pod), k.audience, strconv.FormatInt(k.seconds, 10))...)
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
		c.tokens[tokenKey{t.Pod, t.Audience, t.Seconds}] = issuedToken{text: t.Text, issued: t.Issued, deadline: t.Ends}
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
// After an attempt that failed there is a pause; a pod that has no token yet is not kept waiting.
func (c *tokenCache) get(ctx context.Context, pod *corev1.Pod, key tokenKey) (string, error) {
	now := c.clock.Now()
	c.mu.Lock()
	token, ok := c.tokens[key]
	wait := !c.away.Over(now)
	c.mu.Unlock()
	switch {
	case !ok:
	case !renewal.Due(token.issued, token.deadline, now, key.share()), wait:
		return token.text, nil
	case !token.refused.Over(now):
		return token.unlessEnded(now)
	}
	request := ctx
	if ok {
		var cancel context.CancelFunc
		request, cancel = context.WithTimeout(ctx, tokenPatience)
		defer cancel()
	}
	fresh, err := c.request(request, pod, key)
	if err != nil && (!ok || ctx.Err() != nil) {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !refusal(err) {
		if c.away.Over(now) { // else another pod's attempt began a pause meanwhile
			c.away.Fail(now, key.share("away", strconv.Itoa(c.away.Failed())))
		}
		klog.FromContext(ctx).Error(
			err, "Keeping old service account tokens", "pod", klog.KObj(pod), "expires", token.deadline,
		)
		return token.text, nil
	}
	c.away = renewal.Pause{}
	if err != nil {
		token.why = err
		token.refused.Fail(now, key.share("refused", strconv.Itoa(token.refused.Failed())))
		c.keep(key, token)
		klog.FromContext(ctx).Error(
			err, "No new service account token is to be had", "pod", klog.KObj(pod), "expires", token.deadline,
		)
		return token.unlessEnded(now)
	}
	c.tokens[key] = fresh
	if c.issued != nil {
		c.issued(!ok)
	}
	return fresh.text, nil
}

// keep notes what became of a token, unless the pod's were forgotten meanwhile. The caller holds mu.
func (c *tokenCache) keep(key tokenKey, token issuedToken) {
	if _, ok := c.tokens[key]; ok {
		c.tokens[key] = token
	}
}

// unlessEnded is the text of a token of which the server gives no other one.
func (t issuedToken) unlessEnded(now time.Time) (string, error) {
	if now.Before(t.deadline) {
		return t.text, nil
	}
	return "", t.why
}

// refusal reports whether the server says that there is no such token to be had, as for an account that is gone. That
// it is overloaded, or does not know this node until it has joined again, is none.
func refusal(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsConflict(err)
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
