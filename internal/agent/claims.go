package agent

import (
	"context"
	"fmt"
	"path/filepath"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/agent/claims"
)

// newClaims makes the node's side of dynamic resource allocation.
func (a *Agent) newClaims(n *node) *claims.Manager {
	return claims.New(claims.Config{
		File: filepath.Join(a.cfg.DataDir, "claims.json"),
		Claim: func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			claim, err := n.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("read it from the API: %w", err)
			}
			return claim, nil
		},
		Offers: offers{n.client, a.cfg.NodeName}, Clock: a.clk,
		CDI: func(ctx context.Context) (bool, error) { return n.runtime.KnowsCDI(ctx) },
	})
}

// offers are the ResourceSlices of the node.
type offers struct {
	client   kubernetes.Interface
	nodeName string
}

// List implements claims.Offers.
func (o offers) List(ctx context.Context) ([]resourcev1.ResourceSlice, error) {
	list, err := o.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorNodeName, o.nodeName).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("ask the API: %w", err)
	}
	return list.Items, nil
}

// Delete implements claims.Offers.
func (o offers) Delete(ctx context.Context, name string) error {
	err := o.client.ResourceV1().ResourceSlices().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ask the API: %w", err)
	}
	return nil
}
