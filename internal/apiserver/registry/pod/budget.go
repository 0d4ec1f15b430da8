package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// maxDisrupted bounds the pods whose deletion a budget's status waits for.
const maxDisrupted = 2000

// covering returns the budgets of the pod's namespace that select it.
func (r *EvictionREST) covering(ctx context.Context, p *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	if len(p.Labels) == 0 {
		return nil, nil
	}
	list, err := r.budgets.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []*policyv1.PodDisruptionBudget
	items := list.(*policyv1.PodDisruptionBudgetList).Items
	for i := range items {
		selector, err := metav1.LabelSelectorAsSelector(items[i].Spec.Selector)
		if err == nil && selector.Matches(labels.Set(p.Labels)) {
			out = append(out, &items[i])
		}
	}
	return out, nil
}

// unhealthyMayGo: a pod that is not ready was not counted as healthy, so its
// going may cost nothing.
func unhealthyMayGo(p *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	if podfacts.IsReady(p) {
		return false
	}
	if policy := b.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// spendBudget takes one disruption from the budget, in a dry run only to see
// whether there is one.
func (r *EvictionREST) spendBudget(ctx context.Context, budget, pod string, dryRun bool) error {
	options := &metav1.UpdateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, _, err := r.budgetStatus.Update(
		ctx, budget,
		rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			next := old.(*policyv1.PodDisruptionBudget).DeepCopy()
			return next, spend(next, pod, time.Now())
		}),
		nil, nil, false, options,
	)
	return err
}

// spend records in the budget's status that the pod is about to go, or says why it may not.
func spend(b *policyv1.PodDisruptionBudget, pod string, now time.Time) error {
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return beingProcessed(b.Name)
	case b.Status.DisruptionsAllowed < 0:
		return apierrors.NewForbidden(
			policyv1.Resource("poddisruptionbudget"), b.Name, fmt.Errorf("pdb disruptions allowed is negative"),
		)
	case len(b.Status.DisruptedPods) > maxDisrupted:
		return apierrors.NewForbidden(
			policyv1.Resource("poddisruptionbudget"), b.Name,
			fmt.Errorf("DisruptedPods map too big - too many evictions not confirmed by PDB controller"),
		)
	case b.Status.DisruptionsAllowed == 0:
		return tooManyNow(0, whyNone(b))
	}
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptionsAllowed == 0 {
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.InsufficientPodsReason, ObservedGeneration: b.Status.ObservedGeneration,
		})
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod] = metav1.NewTime(now)
	return nil
}

func whyNone(b *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if c != nil && c.Reason == policyv1.SyncFailedReason {
		return fmt.Sprintf(
			"The disruption budget %s does not allow evicting pods currently because it failed sync: %v", b.Name, c.Message,
		)
	}
	return fmt.Sprintf(
		"The disruption budget %s needs %d healthy pods and has %d currently",
		b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy,
	)
}

// beingProcessed asks the client to come again when the budget's status is true.
func beingProcessed(budget string) error {
	const seconds = 10
	return tooManyNow(seconds, fmt.Sprintf("The disruption budget %s is still being processed by the server.", budget))
}

func tooManyNow(retryAfterSeconds int, why string) error {
	err := apierrors.NewTooManyRequests(
		"Cannot evict pod as it would violate the pod's disruption budget.", retryAfterSeconds,
	)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: why,
	})
	return err
}
