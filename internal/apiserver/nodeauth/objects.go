package nodeauth

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/internal/apiserver/stored"
)

// Objects reads what decides about a node. What is missing gives a NotFound error.
type Objects interface {
	// PodsOnNode lists the pods that are bound to a node: as the API server's watch
	// cache has them, which may be moments behind, or surely as they are now.
	PodsOnNode(ctx context.Context, node string, now bool) ([]corev1.Pod, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	GetCSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	GetAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	GetSlice(ctx context.Context, name string) (*resourcev1.ResourceSlice, error)
}

// Stored reads from the API server's own storages, below HTTP. They are set
// before the server takes requests. What it returns is shared: nothing of it may
// be changed.
type Stored struct {
	Pods interface {
		rest.Getter
		rest.Lister
	}
	Nodes, CSIDrivers, Volumes, Attachments, Slices rest.Getter
}

var _ Objects = &Stored{}

// PodsOnNode implements Objects.
func (s *Stored) PodsOnNode(ctx context.Context, node string, now bool) ([]corev1.Pod, error) {
	options := &metainternalversion.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node),
		ResourceVersion: "0",
	}
	if now {
		options.ResourceVersion = ""
	}
	list, err := s.Pods.List(request.WithNamespace(ctx, metav1.NamespaceAll), options)
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	pods, ok := list.(*corev1.PodList)
	if !ok {
		return nil, fmt.Errorf("list the pods of node %s: got a %T", node, list)
	}
	return pods.Items, nil
}

// GetPod implements Objects.
func (s *Stored) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return stored.Get[*corev1.Pod](ctx, s.Pods, namespace, name)
}

// GetNode implements Objects.
func (s *Stored) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	return stored.Get[*corev1.Node](ctx, s.Nodes, "", name)
}

// GetCSIDriver implements Objects.
func (s *Stored) GetCSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return stored.Get[*storagev1.CSIDriver](ctx, s.CSIDrivers, "", name)
}

// GetVolume implements Objects.
func (s *Stored) GetVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return stored.Get[*corev1.PersistentVolume](ctx, s.Volumes, "", name)
}

// GetAttachment implements Objects.
func (s *Stored) GetAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return stored.Get[*storagev1.VolumeAttachment](ctx, s.Attachments, "", name)
}

// GetSlice implements Objects.
func (s *Stored) GetSlice(ctx context.Context, name string) (*resourcev1.ResourceSlice, error) {
	return stored.Get[*resourcev1.ResourceSlice](ctx, s.Slices, "", name)
}
