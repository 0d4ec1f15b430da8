// Package objects reads the API objects that the pods of a node refer to.
package objects

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/referred"
	"github.com/everynode/everynode/internal/agent/remember"
)

// Reader reads the API objects that the node's pods refer to.
type Reader struct {
	*referred.Cache
	Client        kubernetes.Interface
	ServiceLister corelisters.ServiceLister
	// NoSecrets says that Secrets are not remembered.
	NoSecrets bool
	// ServicesRead reports whether the API told of its services; Known are those of an earlier run, nil if nothing is
	// known of it.
	ServicesRead func() bool
	Known        *remember.Known
	Allocatable  func() corev1.ResourceList
	// VolumeFile reads a file of a pod's volume.
	VolumeFile func(pod *corev1.Pod, volume, path string) ([]byte, error)
	// NodeName is the node's; NodeObject is its object, nil if that was not read yet.
	NodeName   string
	NodeObject func() *corev1.Node
}

// ServiceAccountToken asks for a token of a service account.
func (o Reader) ServiceAccountToken(ctx context.Context, namespace, name string,
	request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return o.Client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
}

// PullSecrets are those that a service account of a pod names at this moment.
func (o Reader) PullSecrets(ctx context.Context, namespace, account string) ([]corev1.LocalObjectReference, error) {
	is, err := o.Client.CoreV1().ServiceAccounts(namespace).Get(ctx, account, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the pull secrets of service account %s: %w", account, err)
	}
	return is.ImagePullSecrets, nil
}

// Secret returns the object, which is shared and must not be changed.
func (o Reader) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := o.Cache.Secret(ctx, namespace, name)
	if o.NoSecrets && events.Unanswered(err) {
		return nil, fmt.Errorf("secret %q is not kept for a start without a control plane (--remember-secrets): %w", name,
			err)
	}
	return secret, err
}

// ServicesKnown reports whether anything is known of services.
func (o Reader) ServicesKnown() bool { return o.Known != nil || o.ServicesRead() }

// Services lists the services of the namespace, and the API server's.
func (o Reader) Services(_ context.Context, namespace string) ([]*corev1.Service, error) {
	if !o.ServicesRead() && o.Known != nil {
		return o.knownServices(namespace), nil
	}
	list, err := o.ServiceLister.Services(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list the services of namespace %s: %w", namespace, err)
	}
	if namespace == metav1.NamespaceDefault {
		return list, nil
	}
	api, err := o.ServiceLister.Services(metav1.NamespaceDefault).Get("kubernetes")
	if err != nil {
		return list, nil //nolint:nilerr // a cluster whose API server has no service yet
	}
	return append(list, api), nil
}

func (o Reader) knownServices(namespace string) []*corev1.Service {
	var list []*corev1.Service
	for _, s := range o.Known.Services {
		if s.Namespace == namespace || s.Namespace == metav1.NamespaceDefault && s.Name == "kubernetes" {
			list = append(list, s)
		}
	}
	return list
}

// File reads a file of a volume of the pod.
func (o Reader) File(pod *corev1.Pod, volume, path string) ([]byte, error) {
	return o.VolumeFile(pod, volume, path)
}

// NodeAllocatable is what pods on this node can use in all.
func (o Reader) NodeAllocatable() corev1.ResourceList { return o.Allocatable() }

// Claim reads a claim of a pod. It is asked for once for each pod, so nothing is watched.
func (o Reader) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return o.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Volume reads the volume of such a claim.
func (o Reader) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return o.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// Node is the node's name, and its labels as far as they are known.
func (o Reader) Node() (string, map[string]string) {
	if node := o.NodeObject(); node != nil {
		return o.NodeName, node.Labels
	}
	return o.NodeName, nil
}
