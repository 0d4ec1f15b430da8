package nodeipam

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/node"
)

// Writer is everything that the controller writes.
type Writer interface {
	// SetPodCIDR gives the node its pod network, none if that is invalid, and tells it what the network is a part of.
	SetPodCIDR(ctx context.Context, node *corev1.Node, block netip.Prefix, of node.PodNetworks) error
}

type clientWriter struct{ client kubernetes.Interface }

// NewWriter returns the Writer that goes through a client, which must have no rate limit of its own.
func NewWriter(client kubernetes.Interface) Writer { return clientWriter{client} }

type object map[string]any

// SetPodCIDR implements Writer. The API server refuses to change a pod network once it is set.
func (a clientWriter) SetPodCIDR(ctx context.Context, n *corev1.Node, block netip.Prefix, of node.PodNetworks) error {
	change := object{"metadata": object{"uid": n.UID, "annotations": of.Annotations()}}
	if block.IsValid() {
		change["spec"] = object{"podCIDR": block.String(), "podCIDRs": []string{block.String()}}
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("encode pod network: %w", err)
	}
	_, err = a.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	return err
}
