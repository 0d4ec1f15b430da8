package nodelifecycle

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/nodelifecycle/health"
	"github.com/everynode/everynode/internal/pod"
)

// api is everything that the controller writes.
type api interface {
	PatchNode(ctx context.Context, name string, kind types.PatchType, body []byte, subresources ...string) (*corev1.Node, error)
	PatchPodStatus(ctx context.Context, key types.NamespacedName, body []byte) error
}

type object map[string]any

// writeNode carries out the plan's conditions and taints. Both patches carry the
// version that the plan was made on, so that a node that speaks up meanwhile wins.
func (c *controller) writeNode(ctx context.Context, plan health.Plan) error {
	node := plan.Node
	version := node.ResourceVersion
	logger := klog.FromContext(ctx).WithValues("node", node.Name)
	if len(plan.Conditions) > 0 {
		body, err := json.Marshal(object{
			"metadata": object{"uid": node.UID, "resourceVersion": version},
			"status":   object{"conditions": plan.Conditions},
		})
		if err != nil {
			return fmt.Errorf("encode conditions: %w", err)
		}
		updated, err := c.api.PatchNode(ctx, node.Name, types.StrategicMergePatchType, body, "status")
		if err != nil {
			return err
		}
		logger.Info("Node stopped posting its status", "conditions", len(plan.Conditions))
		version = updated.ResourceVersion
		if plan.BecameUnknown() {
			c.event(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
		}
	}
	if !plan.TaintsChanged {
		return nil
	}
	body, err := json.Marshal(object{
		"metadata": object{"uid": node.UID, "resourceVersion": version},
		"spec":     object{"taints": plan.Taints},
	})
	if err != nil {
		return fmt.Errorf("encode taints: %w", err)
	}
	logger.V(2).Info("Updating taints", "taints", plan.Taints)
	_, err = c.api.PatchNode(ctx, node.Name, types.MergePatchType, body)
	return err
}

// markPod takes the condition Ready from a pod that nobody can vouch for.
func (c *controller) markPod(ctx context.Context, key types.NamespacedName, now time.Time) error {
	var p corev1.Pod
	if err := c.reader.Get(ctx, key, &p); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !pod.IsReady(&p) {
		return nil
	}
	body, err := json.Marshal(object{
		"metadata": object{"uid": p.UID},
		"status": object{"conditions": []object{{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "lastTransitionTime": metav1.NewTime(now),
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode condition: %w", err)
	}
	if err := c.api.PatchPodStatus(ctx, key, body); err != nil {
		return client.IgnoreNotFound(err)
	}
	c.event(&p, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
	return nil
}

func (c *controller) event(object runtime.Object, kind, reason, format string, args ...any) {
	if c.cfg.Events != nil {
		c.cfg.Events.Eventf(object, kind, reason, format, args...)
	}
}

// clientAPI is the api over client-go.
type clientAPI struct{ client kubernetes.Interface }

// PatchNode implements api.
func (a clientAPI) PatchNode(ctx context.Context, name string, kind types.PatchType, body []byte, subresources ...string) (*corev1.Node, error) {
	return a.client.CoreV1().Nodes().Patch(ctx, name, kind, body, metav1.PatchOptions{}, subresources...)
}

// PatchPodStatus implements api.
func (a clientAPI) PatchPodStatus(ctx context.Context, key types.NamespacedName, body []byte) error {
	_, err := a.client.CoreV1().Pods(key.Namespace).Patch(ctx, key.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}
