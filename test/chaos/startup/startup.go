// Package startup has the nodes of a round that join start the daemons of DaemonSets in an order.
package startup

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
)

// Make makes a NodeStartup with a group of each DaemonSet. None is waited for long: it may be gone, or not work.
func Make(ctx context.Context, to *everynode.Client, namespace string, sets ...string) error {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "order"}}
	for _, name := range sets {
		s.Spec.Groups = append(s.Spec.Groups, v1alpha1.StartupGroup{
			DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: namespace, Name: name}}, Timeout: "3s",
			Then: v1alpha1.ThenOpen,
		})
	}
	_, err := to.NodeStartups().Create(ctx, s, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the NodeStartup: %w", err)
	}
	return nil
}
