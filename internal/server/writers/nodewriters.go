package writers

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/node"
	startup "github.com/everynode/everynode/internal/objects/nodestartup"
)

// changeNode changes this very node, and, if that is asked for, only as it was looked at.
func (i Inside) changeNode(ctx context.Context, n *corev1.Node, subresource string, sameVersion bool,
	change func(*corev1.Node) error) (*corev1.Node, error) {
	return typed[*corev1.Node](i.door.Change(ctx, target(nodes, subresource, n), func(obj runtime.Object) error {
		current := obj.(*corev1.Node)
		if current.UID != n.UID || sameVersion && current.ResourceVersion != n.ResourceVersion {
			return apierrors.NewConflict(nodes.GroupResource(), n.Name,
				errors.New("the node is not the one, or not of the version, that was looked at"))
		}
		return change(current)
	}))
}

// networkWriter gives nodes their pod networks.
type networkWriter struct{ Inside }

// SetPodCIDR implements nodeipam.Writer.
func (w networkWriter) SetPodCIDR(ctx context.Context, n *corev1.Node, block netip.Prefix, of node.PodNetworks) error {
	_, err := w.changeNode(ctx, n, "", false, func(n *corev1.Node) error {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		maps.Copy(n.Annotations, of.Annotations())
		if block.IsValid() {
			n.Spec.PodCIDR, n.Spec.PodCIDRs = block.String(), []string{block.String()}
		}
		return nil
	})
	return err
}

// lifecycleWriter says how nodes are.
type lifecycleWriter struct {
	nodelifecycle.Writer
	Inside
}

// SetConditions implements nodelifecycle.Writer.
func (w lifecycleWriter) SetConditions(ctx context.Context, n *corev1.Node,
	conditions []corev1.NodeCondition) (*corev1.Node, error) {
	return w.changeNode(ctx, n, "status", true, func(n *corev1.Node) error {
		for _, c := range conditions {
			at := slices.IndexFunc(n.Status.Conditions,
				func(old corev1.NodeCondition) bool { return old.Type == c.Type })
			if at < 0 {
				n.Status.Conditions = append(n.Status.Conditions, c)
			} else {
				n.Status.Conditions[at] = c
			}
		}
		return nil
	})
}

// SetTaints implements nodelifecycle.Writer.
func (w lifecycleWriter) SetTaints(ctx context.Context, n *corev1.Node, taints []corev1.Taint) error {
	_, err := w.changeNode(ctx, n, "", true, func(n *corev1.Node) error {
		n.Spec.Taints = taints
		return nil
	})
	return err
}

// gateWriter opens nodes that start.
type gateWriter struct{ Inside }

// SetGate implements nodestartup.GateWriter.
func (w gateWriter) SetGate(ctx context.Context, n *corev1.Node, seen, gate *corev1.Taint, without []string) error {
	_, err := w.changeNode(ctx, n, "", false, func(n *corev1.Node) error {
		have := startup.TaintOf(n.Spec.Taints)
		if have == nil || have.Value != seen.Value || have.Effect != seen.Effect {
			return apierrors.NewConflict(nodes.GroupResource(), n.Name, errors.New("the node's start has gone on"))
		}
		n.Spec.Taints = startup.With(n.Spec.Taints, gate)
		if len(without) > 0 {
			if before := n.Annotations[startup.WithoutAnnotation]; before != "" {
				without = append([]string{before}, without...)
			}
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, startup.WithoutAnnotation, strings.Join(without, ","))
		}
		return nil
	})
	return err
}
