package endpointslice

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// writer is everything that is written here; what the library writes aside.
type writer interface {
	// WriteEndpoints creates endpoints that have no resource version, and updates others.
	WriteEndpoints(ctx context.Context, e *corev1.Endpoints) error
	DeleteEndpoints(ctx context.Context, e *corev1.Endpoints) error
	CreateSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error
	UpdateSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error
	DeleteSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error
}

// overtaken says that somebody else was faster, or that the namespace is going; there
// will be news of it.
func overtaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// clientWriter is the writer over client-go.
type clientWriter struct{ client kubernetes.Interface }

// WriteEndpoints implements writer.
func (w clientWriter) WriteEndpoints(ctx context.Context, e *corev1.Endpoints) (err error) {
	if e.ResourceVersion == "" {
		_, err = w.client.CoreV1().Endpoints(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
		return err
	}
	_, err = w.client.CoreV1().Endpoints(e.Namespace).Update(ctx, e, metav1.UpdateOptions{})
	return err
}

// DeleteEndpoints implements writer.
func (w clientWriter) DeleteEndpoints(ctx context.Context, e *corev1.Endpoints) error {
	return w.client.CoreV1().Endpoints(e.Namespace).Delete(
		ctx, e.Name, *metav1.NewPreconditionDeleteOptions(string(e.UID)),
	)
}

// CreateSlice implements writer.
func (w clientWriter) CreateSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	_, err := w.client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
	return err
}

// UpdateSlice implements writer.
func (w clientWriter) UpdateSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	_, err := w.client.DiscoveryV1().EndpointSlices(s.Namespace).Update(ctx, s, metav1.UpdateOptions{})
	return err
}

// DeleteSlice implements writer.
func (w clientWriter) DeleteSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	return w.client.DiscoveryV1().EndpointSlices(s.Namespace).Delete(
		ctx, s.Name, *metav1.NewPreconditionDeleteOptions(string(s.UID)),
	)
}
