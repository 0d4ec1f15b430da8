package status

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

// APIWriter is the Writer over a Kubernetes client.
type APIWriter struct{ Client kubernetes.Interface }

// PatchStatus sends what differs, on condition of the UID. Conditions that others set are left alone.
func (w APIWriter) PatchStatus(ctx context.Context, pod Pod, before, after *corev1.PodStatus) (*corev1.Pod, error) {
	patch, err := statusPatch(pod.UID, before, after)
	if err != nil {
		return nil, err
	}
	got, err := w.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return got, w.explain(ctx, pod, err)
}

// explain turns a conflict into NotFound if it is because the name now belongs to another pod. Of a pod that is not, or
// no longer, on this node the API says only that it may not be read.
func (w APIWriter) explain(ctx context.Context, pod Pod, err error) error {
	if !apierrors.IsConflict(err) {
		return err
	}
	got, getErr := w.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(getErr):
		return getErr
	case apierrors.IsForbidden(getErr), getErr == nil && got.UID != pod.UID:
		return apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	default:
		return err
	}
}

func statusPatch(uid types.UID, before, after *corev1.PodStatus) ([]byte, error) {
	old, err := json.Marshal(corev1.Pod{Status: *before})
	if err != nil {
		return nil, fmt.Errorf("encode the old status: %w", err)
	}
	// The UID is in the new object only, so that it is in every patch: the API refuses it for a namesake.
	changed, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}, Status: *after})
	if err != nil {
		return nil, fmt.Errorf("encode the new status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, changed, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compare the statuses: %w", err)
	}
	return patch, nil
}

// Delete deletes the pod with no grace period, on condition of the UID.
func (w APIWriter) Delete(ctx context.Context, pod Pod) error {
	zero := int64(0)
	err := w.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	return w.explain(ctx, pod, err)
}
