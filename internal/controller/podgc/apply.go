package podgc

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/podgc/plan"
)

// api is everything that the controller asks of the API server.
type api interface {
	// NodeAbsent reads live whether no node has the name.
	NodeAbsent(ctx context.Context, name string) (bool, error)
	PatchPodStatus(ctx context.Context, key types.NamespacedName, body []byte) error
	// DeletePod deletes by force: nobody is there to end the pod gracefully.
	DeletePod(ctx context.Context, key types.NamespacedName, uid types.UID) error
}

type object map[string]any

// remove says on the pod that it failed and why, then deletes it.
func (c *controller) remove(ctx context.Context, d plan.Doomed) error {
	key := types.NamespacedName{Namespace: d.Pod.Namespace, Name: d.Pod.Name}
	klog.FromContext(ctx).V(2).Info("Deleting pod", "pod", key, "node", d.Pod.Spec.NodeName, "reason", d.Reason.String())
	status := object{}
	if d.Pod.Status.Phase != corev1.PodSucceeded && d.Pod.Status.Phase != corev1.PodFailed {
		status["phase"] = corev1.PodFailed
	}
	if d.Reason == plan.NodeGone {
		status["conditions"] = []corev1.PodCondition{{
			Type:               corev1.DisruptionTarget,
			Status:             corev1.ConditionTrue,
			Reason:             "DeletionByPodGC",
			Message:            "PodGC: node no longer exists",
			LastTransitionTime: metav1.NewTime(c.cfg.Clock.Now()),
		}}
	}
	if len(status) > 0 {
		body, err := json.Marshal(object{"metadata": object{"uid": d.Pod.UID}, "status": status})
		if err != nil {
			return fmt.Errorf("encode status of pod %s: %w", key, err)
		}
		if err := c.api.PatchPodStatus(ctx, key, body); ignoreGone(err) != nil {
			return fmt.Errorf("mark pod %s failed: %w", key, err)
		}
	}
	if err := c.api.DeletePod(ctx, key, d.Pod.UID); ignoreGone(err) != nil {
		return fmt.Errorf("delete pod %s: %w", key, err)
	}
	return nil
}

// ignoreGone drops the errors that mean that this very pod is not there any more:
// nothing has its name, or something with another UID has.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// clientAPI is the api over client-go.
type clientAPI struct{ client kubernetes.Interface }

// NodeAbsent implements api.
func (a clientAPI) NodeAbsent(ctx context.Context, name string) (bool, error) {
	_, err := a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// PatchPodStatus implements api.
func (a clientAPI) PatchPodStatus(ctx context.Context, key types.NamespacedName, body []byte) error {
	_, err := a.client.CoreV1().Pods(key.Namespace).Patch(
		ctx, key.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status",
	)
	return err
}

// DeletePod implements api.
func (a clientAPI) DeletePod(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	now := int64(0)
	return a.client.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}})
}
