// Package tokencleaner removes join tokens that have ended.
//
// An ended token lets nobody in; removing it keeps the list of tokens one of those that do. Few tokens exist, and their
// end is no event, so the controller lists them every minute instead of watching every Secret of the cluster.
package tokencleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// period is the time between two looks.
const period = time.Minute

// Config is what the controller needs.
type Config struct {
	// Client reads and deletes Secrets. Required.
	Client kubernetes.Interface
	// Clock is the real clock unless set.
	Clock clock.WithTicker
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("add the token cleaner: it needs a client")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if err := mgr.Add(&cleaner{cfg}); err != nil {
		return fmt.Errorf("add the token cleaner: %w", err)
	}
	return nil
}

// cleaner is a manager.Runnable that needs to lead.
type cleaner struct{ cfg Config }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *cleaner) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (c *cleaner) Start(ctx context.Context) error {
	ticker := c.cfg.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		if err := c.clean(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Ended join tokens could not be removed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// clean goes on after errors and returns them joined.
func (c *cleaner) clean(ctx context.Context) error {
	secrets := c.cfg.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	list, err := secrets.List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("type", string(tokenType)).String(),
		ResourceVersion: "0",
	})
	if err != nil {
		return fmt.Errorf("list join tokens: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if s := &list.Items[i]; expired(s, c.cfg.Clock.Now()) {
			errs = append(errs, c.remove(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// remove deletes the token as it was read: one that was given a later end meanwhile stays.
func (c *cleaner) remove(ctx context.Context, s *corev1.Secret) error {
	err := c.cfg.Client.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete join token %s: %w", s.Name, err)
	}
	if err == nil {
		klog.FromContext(ctx).Info("Removed a join token that had ended", "secret", klog.KObj(s))
	}
	return nil
}
