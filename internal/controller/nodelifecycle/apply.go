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
	"github.com/everynode/everynode/internal/objects/pod"
)

// Writer is everything that the controller writes. What is written about a node is refused with Conflict if the node is
// another or of another version than the one given.
type Writer interface {
	// SetConditions puts conditions into the node's status in place of those of the same types, and returns the node.
	SetConditions(ctx context.Context, node *corev1.Node, conditions []corev1.NodeCondition) (*corev1.Node, error)
	// SetTaints gives the node these taints and no others.
	SetTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error
	// SetPodUnready says in the status of this very pod that it is not ready.
	SetPodUnready(ctx context.Context, pod *corev1.Pod, since metav1.Time) error
}

// writeNode carries out the plan's conditions and taints, both for the version that the plan was made on, so that a
// node that speaks up meanwhile wins.
func (c *controller) writeNode(ctx context.Context, plan health.Plan) error {
	node := plan.Node
	logger := klog.FromContext(ctx).WithValues("node", node.Name)
	if len(plan.Conditions) > 0 {
		updated, err := c.writer.SetConditions(ctx, node, plan.Conditions)
		if err != nil {
			return err
		}
		logger.Info("Node stopped posting its status", "conditions", len(plan.Conditions))
		node = updated
		if plan.BecameUnknown() {
			c.event(node, corev1.EventTypeNormal, "NodeNotReady", "Node %s status is now: NodeNotReady", node.Name)
		}
	}
	if !plan.TaintsChanged {
		return nil
	}
	logger.V(2).Info("Updating taints", "taints", plan.Taints)
	return c.writer.SetTaints(ctx, node, plan.Taints)
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
	if err := c.writer.SetPodUnready(ctx, &p, metav1.NewTime(now)); err != nil {
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

type clientWriter struct{ client kubernetes.Interface }

// NewWriter returns the Writer that goes through a client, which must have no rate limit of its own.
func NewWriter(client kubernetes.Interface) Writer { return clientWriter{client} }

type object map[string]any

// SetConditions implements Writer.
func (w clientWriter) SetConditions(ctx context.Context, node *corev1.Node,
	conditions []corev1.NodeCondition) (*corev1.Node, error) {
	return w.patchNode(
		ctx, node, types.StrategicMergePatchType, object{"status": object{"conditions": conditions}}, "status",
	)
}

// SetTaints implements Writer.
func (w clientWriter) SetTaints(ctx context.Context, node *corev1.Node, taints []corev1.Taint) error {
	_, err := w.patchNode(ctx, node, types.MergePatchType, object{"spec": object{"taints": taints}})
	return err
}

func (w clientWriter) patchNode(
	ctx context.Context, node *corev1.Node, kind types.PatchType, patch object, subresources ...string,
) (*corev1.Node, error) {
	patch["metadata"] = object{"uid": node.UID, "resourceVersion": node.ResourceVersion}
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode change of node %s: %w", node.Name, err)
	}
	return w.client.CoreV1().Nodes().Patch(ctx, node.Name, kind, body, metav1.PatchOptions{}, subresources...)
}

// SetPodUnready implements Writer.
func (w clientWriter) SetPodUnready(ctx context.Context, pod *corev1.Pod, since metav1.Time) error {
	body, err := json.Marshal(object{
		"metadata": object{"uid": pod.UID},
		"status": object{"conditions": []object{{
			"type": corev1.PodReady, "status": corev1.ConditionFalse, "lastTransitionTime": since,
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode condition: %w", err)
	}
	_, err = w.client.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status",
	)
	return err
}
