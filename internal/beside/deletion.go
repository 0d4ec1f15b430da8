package beside

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
)

// DeletePod deletes a pod in its turn, if the API server asks the webhook, and has the pod as the cache has it. What
// has changed meanwhile is decided about again: it may have served nobody then, and serve now, and no limit counts it.
func (g *Guest) DeletePod(ctx context.Context, by kubernetes.Interface, objects client.Reader, pod types.NamespacedName,
	uid types.UID) error {
	var seen corev1.Pod
	err := objects.Get(ctx, pod, &seen, client.UnsafeDisableDeepCopy)
	if err != nil {
		return err
	}
	// The trial takes a while. What becomes of the pod in that time counts too.
	version := seen.ResourceVersion
	err = g.mayReplace(ctx, objects, belongings.OwnerOf(&seen), pod.Namespace)
	if err != nil {
		return fmt.Errorf("leave pod %s as it is: %w", pod, err)
	}
	pods := by.CoreV1().Pods(pod.Namespace)
	err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if !apierrors.IsConflict(err) {
		return err
	}
	now, failed := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if failed != nil {
		return failed
	}
	if now.UID != uid {
		return err
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusPreconditionFailed,
		Message: fmt.Sprintf("leave pod %s as it is: it has changed since it was seen", pod),
	}}
}
