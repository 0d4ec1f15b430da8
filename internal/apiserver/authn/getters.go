package authn

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
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

// ClientGetters reads everything through an API client.
func ClientGetters(client kubernetes.Interface) Getters { return NewGetters(client, nil) }

// NewGetters reads through an API client. Service accounts, which every new pod
// needs, are looked up in accounts first when that is given; what it does not
// know yet is read through the client.
func NewGetters(client kubernetes.Interface, accounts corelisters.ServiceAccountLister) Getters {
	return clientGetters{client: client, accounts: accounts}
}

type clientGetters struct {
	client   kubernetes.Interface
	accounts corelisters.ServiceAccountLister
}

func (g clientGetters) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if !possible(namespace, name) {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return g.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g clientGetters) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if g.accounts != nil {
		if account, err := g.accounts.ServiceAccounts(namespace).Get(name); err == nil {
			return account, nil
		}
	}
	if !possible(namespace, name) {
		return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
	}
	return g.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g clientGetters) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	if !possible(namespace, name) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return g.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g clientGetters) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	if !possible("", name) {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return g.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// possible says whether an object can have this name. A client has no words for
// one that cannot: to whoever asks, there is no such object.
func possible(namespace, name string) bool {
	return name != "" && len(content.IsPathSegmentName(name)) == 0 && len(content.IsPathSegmentName(namespace)) == 0
}
