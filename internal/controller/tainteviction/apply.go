package tainteviction

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

	"github.com/everynode/everynode/internal/controller/tainteviction/plan"
)

// api is everything that the controller writes.
type api interface {
	PatchPodStatus(ctx context.Context, key types.NamespacedName, body []byte) error
	DeletePod(ctx context.Context, key types.NamespacedName, uid types.UID) error
}

type object map[string]any

// evict says on the pod why it goes, then deletes it with its own grace period.
func (c *controller) evict(ctx context.Context, p plan.Pod) error {
	klog.FromContext(ctx).V(2).Info("Evicting pod", "pod", p.NamespacedName, "node", p.Node)
	c.event(p, "Marking for deletion Pod %s", p.NamespacedName)
	body, err := json.Marshal(object{
		"metadata": object{"uid": p.UID},
		"status": object{"conditions": []corev1.PodCondition{{
			Type:               corev1.DisruptionTarget,
			Status:             corev1.ConditionTrue,
			Reason:             "DeletionByTaintManager",
			Message:            "Taint manager: deleting due to NoExecute taint",
			LastTransitionTime: metav1.NewTime(c.cfg.Clock.Now()),
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode condition of pod %s: %w", p.NamespacedName, err)
	}
	if err := c.api.PatchPodStatus(ctx, p.NamespacedName, body); ignoreGone(err) != nil {
		return fmt.Errorf("mark pod %s as disrupted: %w", p.NamespacedName, err)
	}
	if err := c.api.DeletePod(ctx, p.NamespacedName, p.UID); ignoreGone(err) != nil {
		return fmt.Errorf("delete pod %s: %w", p.NamespacedName, err)
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

func (c *controller) event(p plan.Pod, format string, args ...any) {
	if c.cfg.Events == nil {
		return
	}
	ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	c.cfg.Events.Eventf(ref, corev1.EventTypeNormal, "TaintManagerEviction", format, args...)
}

// clientAPI is the api over client-go.
type clientAPI struct{ client kubernetes.Interface }

// PatchPodStatus implements api.
func (a clientAPI) PatchPodStatus(ctx context.Context, key types.NamespacedName, body []byte) error {
	_, err := a.client.CoreV1().Pods(key.Namespace).Patch(
		ctx, key.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status",
	)
	return err
}

// DeletePod implements api.
func (a clientAPI) DeletePod(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	return a.client.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid},
	})
}
