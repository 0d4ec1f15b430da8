package writers

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/node"
)

// changeNode changes this very node, and, if that is asked for, only as it was looked at.
func (i Inside) changeNode(ctx context.Context, n *corev1.Node, subresource string, sameVersion bool,
	change func(*corev1.Node)) (*corev1.Node, error) {
	return typed[*corev1.Node](i.door.Change(ctx, target(nodes, subresource, n), func(obj runtime.Object) error {
		current := obj.(*corev1.Node)
		if current.UID != n.UID || sameVersion && current.ResourceVersion != n.ResourceVersion {
			return apierrors.NewConflict(nodes.GroupResource(), n.Name,
				errors.New("the node is not the one, or not of the version, that was looked at"))
		}
		change(current)
		return nil
	}))
}

// networkWriter gives nodes their pod networks.
type networkWriter struct{ Inside }

// SetPodCIDR implements nodeipam.Writer.
func (w networkWriter) SetPodCIDR(ctx context.Context, n *corev1.Node, block netip.Prefix, of node.PodNetworks) error {
	_, err := w.changeNode(ctx, n, "", false, func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		maps.Copy(n.Annotations, of.Annotations())
		if block.IsValid() {
			n.Spec.PodCIDR, n.Spec.PodCIDRs = block.String(), []string{block.String()}
		}
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
	return w.changeNode(ctx, n, "status", true, func(n *corev1.Node) {
		for _, c := range conditions {
			at := slices.IndexFunc(n.Status.Conditions,
				func(old corev1.NodeCondition) bool { return old.Type == c.Type })
			if at < 0 {
				n.Status.Conditions = append(n.Status.Conditions, c)
			} else {
				n.Status.Conditions[at] = c
			}
		}
	})
}

// SetTaints implements nodelifecycle.Writer.
func (w lifecycleWriter) SetTaints(ctx context.Context, n *corev1.Node, taints []corev1.Taint) error {
	_, err := w.changeNode(ctx, n, "", true, func(n *corev1.Node) { n.Spec.Taints = taints })
	return err
}
