// Package ttlafterfinished deletes Jobs that have been over for as long as their
// ttlSecondsAfterFinished says, with their pods.
package ttlafterfinished

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/everynode/everynode/internal/objects/job"
)

// Config is what the controller needs.
type Config struct {
	// Client reads and deletes Jobs. Required.
	Client kubernetes.Interface
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("ttlafterfinished: Client is required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	r := &reconciler{reader: mgr.GetClient(), client: cfg.Client, clock: cfg.Clock}
	if err := ctrl.NewControllerManagedBy(mgr).Named("ttl-after-finished").For(&batchv1.Job{}).Complete(r); err != nil {
		return fmt.Errorf("add the controller of Jobs that are over: %w", err)
	}
	return nil
}

type reconciler struct {
	reader client.Reader
	client kubernetes.Interface
	clock  clock.PassiveClock
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var cached batchv1.Job
	if err := r.reader.Get(ctx, key.NamespacedName, &cached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	left, ends := remaining(&cached, r.clock.Now())
	if !ends || left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	// The time may have been changed just now, and a deletion cannot be undone.
	live, err := r.client.BatchV1().Jobs(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if left, ends = remaining(live, r.clock.Now()); !ends || left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	err = r.client.BatchV1().Jobs(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion},
	})
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: time.Second}, nil // it has changed again
	case client.IgnoreNotFound(err) != nil:
		return ctrl.Result{}, fmt.Errorf("delete Job %s, which is over: %w", key, err)
	}
	klog.FromContext(ctx).V(3).Info("Deleted Job that is over", "job", klog.KObj(live))
	return ctrl.Result{}, nil
}

// remaining is how long a Job stays. The second result is false if it stays for ever
// as it is now.
func remaining(j *batchv1.Job, now time.Time) (time.Duration, bool) {
	end := job.Finished(j)
	if end == nil || j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return 0, false
	}
	return end.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now), true
}
