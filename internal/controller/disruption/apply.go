package disruption

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/disruption/plan"
)

// writer is everything that the controller writes.
type writer interface {
	// UpdateStatus fails with a conflict if the budget has changed since it was read:
	// an eviction that spent from it meanwhile must not be undone.
	UpdateStatus(ctx context.Context, budget *policyv1.PodDisruptionBudget) error
}

// apply writes what was decided, if it is news, and tells users what they should know.
func (r *reconciler) apply(ctx context.Context, in plan.Input, result plan.Result) error {
	if !result.Changed {
		return nil
	}
	// A copy of the struct is enough to set another status: the budget is shared.
	next := *in.Budget
	next.Status = result.Status
	err := r.writer.UpdateStatus(ctx, &next)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the change that was faster brings us back
	}
	if err != nil {
		return fmt.Errorf("update the status of budget %s: %w", klog.KObj(in.Budget), err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote what the budget allows", "budget", klog.KObj(in.Budget),
		"disruptionsAllowed", next.Status.DisruptionsAllowed, "healthy", next.Status.CurrentHealthy, "desired",
		next.Status.DesiredHealthy)
	r.tell(in, result)
	return nil
}

func (r *reconciler) tell(in plan.Input, result plan.Result) {
	if len(in.Pods) == 0 {
		r.event(in.Budget, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	if result.Err != nil {
		r.event(in.Budget, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed",
			"Failed to calculate the number of expected pods: %v", result.Err)
	}
	if result.Unmanaged > 0 {
		r.event(in.Budget, corev1.EventTypeWarning, "UnmanagedPods",
			"%d of the selected pods have no controller, so nobody replaces them: set minAvailable to a number to protect them",
			result.Unmanaged)
	}
	for _, p := range result.Overdue {
		r.event(
			p, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s to be deleted but it wasn't",
			klog.KObj(in.Budget),
		)
	}
}

func (r *reconciler) event(object runtime.Object, kind, reason, format string, args ...any) {
	if r.events != nil {
		r.events.Eventf(object, kind, reason, format, args...)
	}
}

// clientWriter is the writer over client-go.
type clientWriter struct{ client kubernetes.Interface }

// UpdateStatus implements writer.
func (w clientWriter) UpdateStatus(ctx context.Context, budget *policyv1.PodDisruptionBudget) error {
	_, err := w.client.PolicyV1().PodDisruptionBudgets(budget.Namespace).UpdateStatus(ctx, budget, metav1.UpdateOptions{})
	return err
}
