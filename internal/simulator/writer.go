package simulator

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Writer is what the simulated nodes do to the API. Every method fails with the API's own errors, wrapped.
type Writer interface {
	CreateNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error)
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	UpdateNodeStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error)
	// LabelNode gives this very node a label.
	LabelNode(ctx context.Context, node *corev1.Node, key, value string) (*corev1.Node, error)
	CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	GetLease(ctx context.Context, name string) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)
	// UpdatePodStatus fails with Conflict if the pod is newer than the one given.
	UpdatePodStatus(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	// DeletePod removes this very pod without grace.
	DeletePod(ctx context.Context, pod *corev1.Pod) error
	// GetConfigMap reads what a pod refers to.
	GetConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
}

type clientWriter struct{ client kubernetes.Interface }

// NewWriter returns the Writer that goes through a client.
func NewWriter(client kubernetes.Interface) Writer { return clientWriter{client} }

func (w clientWriter) CreateNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	created, err := w.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return created, wrap("create node", node.Name, err)
}

func (w clientWriter) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := w.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return node, wrap("get node", name, err)
}

func (w clientWriter) UpdateNodeStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	updated, err := w.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return updated, wrap("update status of node", node.Name, err)
}

func (w clientWriter) LabelNode(ctx context.Context, node *corev1.Node, key, value string) (*corev1.Node, error) {
	meta := map[string]any{"uid": node.UID, "labels": map[string]string{key: value}}
	patch, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		return nil, wrap("write a label of node", node.Name, err)
	}
	labelled, err := w.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return labelled, wrap("label node", node.Name, err)
}

func (w clientWriter) CreateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	created, err := w.client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{})
	return created, wrap("create lease", lease.Name, err)
}

func (w clientWriter) GetLease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	lease, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
	return lease, wrap("get lease", name, err)
}

func (w clientWriter) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	updated, err := w.client.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
	return updated, wrap("update lease", lease.Name, err)
}

func (w clientWriter) UpdatePodStatus(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	updated, err := w.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return updated, wrap("update status of pod", pod.Namespace+"/"+pod.Name, err)
}

func (w clientWriter) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	return wrap(
		"delete pod", pod.Namespace+"/"+pod.Name, w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options),
	)
}

func (w clientWriter) GetConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	m, err := w.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return m, wrap("get ConfigMap", namespace+"/"+name, err)
}

func wrap(tried, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", tried, name, err)
}
