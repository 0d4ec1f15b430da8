package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
)

// EvictionREST deletes a pod unless a PodDisruptionBudget forbids it now.
type EvictionREST struct{ pods, budgets, budgetStatus *genericregistry.Store }

// NewEvictionREST returns the pods/eviction subresource; budgets and
// budgetStatus are the stores of PodDisruptionBudgets and of their status.
func NewEvictionREST(pods, budgets, budgetStatus *genericregistry.Store) *EvictionREST {
	return &EvictionREST{pods: pods, budgets: budgets, budgetStatus: budgetStatus}
}

var _ rest.NamedCreater = (*EvictionREST)(nil)
var _ rest.GroupVersionKindProvider = (*EvictionREST)(nil)

// New implements rest.Storage.
func (r *EvictionREST) New() runtime.Object { return &policyv1.Eviction{} }

// Destroy implements rest.Storage.
func (r *EvictionREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider: the body is a
// policy/v1 Eviction though pods belong to the core group.
func (r *EvictionREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return policyv1.SchemeGroupVersion.WithKind("Eviction")
}

// Create implements rest.NamedCreater.
func (r *EvictionREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", obj))
	}
	if name != eviction.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	found, err := r.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopy()); err != nil {
			return nil, err
		}
	}
	deletion := metav1.DeleteOptions{}
	if eviction.DeleteOptions != nil {
		deletion = *eviction.DeleteOptions
	}
	deletion.DryRun = append(deletion.DryRun, options.DryRun...)
	target := found.(*corev1.Pod)
	if needsBudget(target) {
		if err := r.spendBudget(ctx, target, dryrun.IsDryRun(deletion.DryRun)); err != nil {
			return nil, err
		}
	}
	if _, _, err := r.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, &deletion); err != nil {
		return nil, err
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

// needsBudget: a pod that has ended, has not begun, or is going already
// disrupts nobody.
func needsBudget(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return false
	}
	return p.DeletionTimestamp == nil
}

// spendBudget takes one disruption from the budget that covers the pod.
func (r *EvictionREST) spendBudget(ctx context.Context, p *corev1.Pod, dryRun bool) error {
	list, err := r.budgets.List(ctx, &metainternalversion.ListOptions{})
	if err != nil {
		return err
	}
	var covering []*policyv1.PodDisruptionBudget
	for i := range list.(*policyv1.PodDisruptionBudgetList).Items {
		b := &list.(*policyv1.PodDisruptionBudgetList).Items[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(p.Labels)) {
			covering = append(covering, b)
		}
	}
	switch len(covering) {
	case 0:
		return nil
	case 1:
	default:
		return apierrors.NewInternalError(fmt.Errorf("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
	}
	budget := covering[0]
	if unready(p) && unreadyMayGo(budget) || dryRun && budget.Status.DisruptionsAllowed > 0 {
		return nil
	}
	_, _, err = r.budgetStatus.Update(ctx, budget.Name, rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		next := old.(*policyv1.PodDisruptionBudget).DeepCopy()
		return next, spend(next, p.Name, time.Now())
	}), nil, nil, false, &metav1.UpdateOptions{})
	return err
}

func unready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return true
}

func unreadyMayGo(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// spend records in the budget's status that the pod is about to go, or says why it may not.
func spend(b *policyv1.PodDisruptionBudget, pod string, now time.Time) error {
	refused := func(message string) error {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
		return err
	}
	switch {
	case b.Status.ObservedGeneration < b.Generation:
		return refused(fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case b.Status.DisruptionsAllowed <= 0:
		return refused(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy))
	case len(b.Status.DisruptedPods) > 2000:
		return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), b.Name, fmt.Errorf("DisruptedPods map too big - too many evictions not confirmed by PDB controller"))
	}
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod] = metav1.NewTime(now)
	return nil
}
