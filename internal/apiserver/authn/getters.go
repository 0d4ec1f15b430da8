package authn

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/everynode/everynode/internal/apiserver/stored"
)

// SecretGetter reads one Secret. What is missing gives a NotFound error.
type SecretGetter interface {
	GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Getters reads the objects that tokens are bound to. What is missing gives a
// NotFound error. Answers must be fresh: a token dies with its object.
type Getters interface {
	SecretGetter
	GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
}

// Stored reads from the API server's own storages. They are set before the server takes
// requests.
type Stored struct{ Secrets, ServiceAccounts, Pods, Nodes rest.Getter }

var _ Getters = &Stored{}

// GetSecret implements Getters.
func (s *Stored) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return fresh[*corev1.Secret](ctx, s.Secrets, "secrets", namespace, name)
}

// JoinTokens reads the Secrets of join tokens, which anybody may name: from memory. One that is
// not there may be too new, and is looked for in the database some times in a second at most.
type JoinTokens struct {
	known, stored func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	fresh         flowcontrol.PassiveRateLimiter
}

// JoinTokens reads those that are stored.
func (s *Stored) JoinTokens() *JoinTokens {
	known := func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
		return stored.Cached[*corev1.Secret](ctx, s.Secrets, namespace, name)
	}
	return newJoinTokens(known, s.GetSecret)
}

func newJoinTokens(known, stored func(context.Context, string, string) (*corev1.Secret, error)) *JoinTokens {
	return &JoinTokens{known, stored, flowcontrol.NewTokenBucketRateLimiter(freshTokens, 2*freshTokens)}
}

// freshTokens is how many join tokens are looked for in the database in a second.
const freshTokens = 5

// GetSecret implements SecretGetter.
func (j *JoinTokens) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := j.known(ctx, namespace, name)
	if apierrors.IsNotFound(err) && j.fresh.TryAccept() {
		return j.stored(ctx, namespace, name)
	}
	return secret, err
}

// GetServiceAccount implements Getters. Every new pod needs its account, and accounts
// change seldom: only one that is not in the watch cache yet is read afresh.
func (s *Stored) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if possible(namespace, name) {
		if account, err := stored.Cached[*corev1.ServiceAccount](ctx, s.ServiceAccounts, namespace, name); err == nil {
			return account, nil
		}
	}
	return fresh[*corev1.ServiceAccount](ctx, s.ServiceAccounts, "serviceaccounts", namespace, name)
}

// GetPod implements Getters.
func (s *Stored) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return fresh[*corev1.Pod](ctx, s.Pods, "pods", namespace, name)
}

// GetNode implements Getters.
func (s *Stored) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return fresh[*corev1.Node](ctx, s.Nodes, "nodes", "", name)
}

func fresh[T runtime.Object](ctx context.Context, from rest.Getter,
	resource, namespace, name string) (found T, err error) {
	if !possible(namespace, name) {
		return found, apierrors.NewNotFound(corev1.Resource(resource), name)
	}
	return stored.Get[T](ctx, from, namespace, name)
}

// possible says whether an object can have this name. The storage has no words for one
// that cannot: to whoever asks, there is no such object.
func possible(namespace, name string) bool {
	return name != "" && len(content.IsPathSegmentName(name)) == 0 && len(content.IsPathSegmentName(namespace)) == 0
}
