package agent

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/everynode/everynode/internal/agent/referred"
)

// objects reads the API objects that the node's pods refer to.
type objects struct {
	*referred.Cache
	client      kubernetes.Interface
	services    corelisters.ServiceLister
	allocatable func() corev1.ResourceList
}

// ServiceAccountToken asks for a token of a service account.
func (o objects) ServiceAccountToken(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return o.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
}

// Services lists the services of the namespace, and the API server's.
func (o objects) Services(_ context.Context, namespace string) ([]*corev1.Service, error) {
	list, err := o.services.Services(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the services of namespace %s: %w", namespace, err)
	}
	if namespace == metav1.NamespaceDefault {
		return list, nil
	}
	api, err := o.services.Services(metav1.NamespaceDefault).Get("kubernetes")
	if err != nil {
		return list, nil //nolint:nilerr // a cluster whose API server has no service yet
	}
	return append(list, api), nil
}

// NodeAllocatable is what pods on this node can use in all.
func (o objects) NodeAllocatable() corev1.ResourceList { return o.allocatable() }
