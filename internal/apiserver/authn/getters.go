package authn

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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

// ClientGetters reads through an API client.
func ClientGetters(client kubernetes.Interface) Getters { return clientGetters{client} }

type clientGetters struct{ client kubernetes.Interface }

func (g clientGetters) GetSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return g.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g clientGetters) GetServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return g.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g clientGetters) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return g.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (g clientGetters) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return g.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}
