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
	"github.com/everynode/everynode/internal/agent/remember"
)

// objects reads the API objects that the node's pods refer to.
type objects struct {
	*referred.Cache
	client   kubernetes.Interface
	services corelisters.ServiceLister
	// noSecrets says that Secrets are not remembered.
	noSecrets bool
	// servicesRead says whether the API told of its services; known are those of an earlier run, nil if nothing is known of it.
	servicesRead func() bool
	known        *remember.Known
	allocatable  func() corev1.ResourceList
	// file reads a file of a pod's volume.
	file func(pod *corev1.Pod, volume, path string) ([]byte, error)
	// nodeName is the node's; node is its object, nil if that was not read yet.
	nodeName string
	node     func() *corev1.Node
}

// ServiceAccountToken asks for a token of a service account.
func (o objects) ServiceAccountToken(ctx context.Context, namespace, name string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return o.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
}

// Secret returns the object, which is shared and must not be changed.
func (o objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := o.Cache.Secret(ctx, namespace, name)
	if o.noSecrets && unanswered(err) {
		return nil, fmt.Errorf("secret %q is not kept for a start without a control plane (--remember-secrets): %w", name, err)
	}
	return secret, err
}

// servicesKnown says whether anything is known of services.
func (o objects) servicesKnown() bool { return o.known != nil || o.servicesRead() }

// Services lists the services of the namespace, and the API server's.
func (o objects) Services(_ context.Context, namespace string) ([]*corev1.Service, error) {
	if !o.servicesRead() && o.known != nil {
		return o.knownServices(namespace), nil
	}
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

func (o objects) knownServices(namespace string) []*corev1.Service {
	var list []*corev1.Service
	for _, s := range o.known.Services {
		if s.Namespace == namespace || s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes" {
			list = append(list, s)
		}
	}
	return list
}

// File reads a file of a volume of the pod.
func (o objects) File(pod *corev1.Pod, volume, path string) ([]byte, error) {
	return o.file(pod, volume, path)
}

// NodeAllocatable is what pods on this node can use in all.
func (o objects) NodeAllocatable() corev1.ResourceList { return o.allocatable() }

// Claim reads a claim of a pod. It is asked for once for each pod, so nothing is watched.
func (o objects) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return o.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Volume reads the volume of such a claim.
func (o objects) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return o.client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// Node is the node's name, and its labels as far as they are known.
func (o objects) Node() (string, map[string]string) {
	if node := o.node(); node != nil {
		return o.nodeName, node.Labels
	}
	return o.nodeName, nil
}
