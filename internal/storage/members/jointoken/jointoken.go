// Package jointoken has the join token of a server used once.
package jointoken

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/apiserver/authn"
)

// Use keeps a token for the first server that joins with it: that one may have to ask again,
// nobody else may. A conflict with somebody who uses it at the same time passes.
func Use(ctx context.Context, client kubernetes.Interface, id, server string) error {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	secret, err := secrets.Get(ctx, authn.BootstrapSecretPrefix+id, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the join token %s: %w", id, err)
	}
	changed, err := authn.UseBy(secret, server)
	if err != nil || !changed {
		return err
	}
	if _, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write who uses the join token %s: %w", id, err)
	}
	return nil
}

// Drop removes a token that was used.
func Drop(ctx context.Context, client kubernetes.Interface, id string) error {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	err := secrets.Delete(ctx, authn.BootstrapSecretPrefix+id, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove the join token %s, which was used: %w", id, err)
	}
	klog.FromContext(ctx).Info("Removed the join token of this server", "tokenID", id)
	return nil
}
