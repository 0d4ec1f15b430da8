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
)

// api is everything that the controller writes.
type api interface {
	SetPodCIDR(ctx context.Context, node *corev1.Node, block netip.Prefix) error
}

// clientAPI is the api over client-go.
type clientAPI struct{ client kubernetes.Interface }

type object map[string]any

// SetPodCIDR implements api. The API server refuses to change a pod network once it is set.
func (a clientAPI) SetPodCIDR(ctx context.Context, node *corev1.Node, block netip.Prefix) error {
	body, err := json.Marshal(object{
		"metadata": object{"uid": node.UID},
		"spec":     object{"podCIDR": block.String(), "podCIDRs": []string{block.String()}},
	})
	if err != nil {
		return fmt.Errorf("encode pod network: %w", err)
	}
	_, err = a.client.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
	return err
}
