// Package podwriter writes pods through an API client, in the way of controllers that
// own pods.
package podwriter

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Writer writes pods. Its errors are the API's own.
type Writer struct{ Client kubernetes.Interface }

// CreatePod makes a pod, and returns it as it is stored.
func (w Writer) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return w.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
}

// GetPod returns a pod as it is stored.
func (w Writer) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return w.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// TryPod has the API say whether it would make a pod, without making it.
func (w Writer) TryPod(ctx context.Context, p *corev1.Pod) error {
	_, err := w.Client.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// DeletePod deletes the pod of that UID, and no later one of the same name.
func (w Writer) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	return w.Client.CoreV1().Pods(namespace).
		Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))})
}

// PatchPod sends a strategic merge patch, and returns the pod as it is stored.
func (w Writer) PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	return w.Client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}
