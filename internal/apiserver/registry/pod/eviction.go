package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// EvictionREST deletes a pod unless a PodDisruptionBudget forbids it now. The
// pod's status says first that it goes by an eviction.
type EvictionREST struct{ pods, podStatus, budgets, budgetStatus *genericregistry.Store }

// NewEvictionREST returns the pods/eviction subresource; it takes the stores of
// pods and of PodDisruptionBudgets, and those of their status.
func NewEvictionREST(pods, podStatus, budgets, budgetStatus *genericregistry.Store) *EvictionREST {
	return &EvictionREST{pods: pods, podStatus: podStatus, budgets: budgets, budgetStatus: budgetStatus}
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
func (r *EvictionREST) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	eviction, ok := obj.(*policyv1.Eviction)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Eviction object: %T", obj))
	}
	if name != eviction.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	}
	if validate != nil {
		if err := validate(ctx, eviction.DeepCopy()); err != nil {
			return nil, err
		}
	}
	deletion := metav1.DeleteOptions{}
	if eviction.DeleteOptions != nil {
		deletion = *eviction.DeleteOptions.DeepCopy()
	}
	deletion.DryRun = append(deletion.DryRun, options.DryRun...)
	return r.evict(ctx, name, &deletion)
}

// evict returns a Status of success, or one that says why the pod cannot go.
func (r *EvictionREST) evict(ctx context.Context, name string, asked *metav1.DeleteOptions) (runtime.Object, error) {
	target, gone, err := r.evictFreely(ctx, name, asked)
	if err != nil {
		return nil, err
	}
	if gone {
		return success(), nil
	}
	budgets, err := r.covering(ctx, target)
	if err != nil {
		return nil, err
	}
	deletion, budget := asked, ""
	switch len(budgets) {
	case 0:
	case 1:
		budget = budgets[0].Name
		if unhealthyMayGo(target, budgets[0]) {
			// It may go because it is not ready; if it changes meanwhile, it may not.
			deletion = ifUnchanged(asked, target)
		} else if err := r.spendBudget(ctx, budget, name, dryrun.IsDryRun(asked.DryRun)); err != nil {
			return nil, err
		}
	default:
		return &metav1.Status{Status: metav1.StatusFailure, Code: 500,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}, nil
	}
	err = r.markAndDelete(ctx, name, deletion)
	if apierrors.IsConflict(err) && deletion != asked && !versioned(asked) {
		return nil, beingProcessed(budget)
	}
	if err != nil {
		return nil, err
	}
	return success(), nil
}

func success() *metav1.Status { return &metav1.Status{Status: metav1.StatusSuccess} }

// evictFreely deletes the pod if no budget has a say. A pod that changes
// meanwhile, perhaps to one that a budget protects, is looked at again.
func (r *EvictionREST) evictFreely(ctx context.Context, name string,
	asked *metav1.DeleteOptions) (target *corev1.Pod, gone bool, err error) {
	again := func(err error) bool { return apierrors.IsConflict(err) && !versioned(asked) }
	err = retry.OnError(retry.DefaultBackoff, again, func() error {
		found, err := r.pods.Get(ctx, name, &metav1.GetOptions{})
		if err != nil {
			return err
		}
		target = found.(*corev1.Pod)
		if needsBudget(target) {
			return nil
		}
		deletion := asked.DeepCopy()
		if mayBecomeReady(target) && !versioned(asked) {
			deletion = ifUnchanged(asked, target)
		}
		err = r.markAndDelete(ctx, name, deletion)
		gone = err == nil
		return err
	})
	return target, gone, err
}

// needsBudget: a pod that has ended, has not begun, or is going already
// disrupts nobody.
func needsBudget(p *corev1.Pod) bool {
	return mayBecomeReady(p) && p.Status.Phase != corev1.PodPending
}

func mayBecomeReady(p *corev1.Pod) bool {
	return !podfacts.IsTerminal(p) && !podfacts.IsTerminating(p)
}

// versioned says whether the request itself names the pod's version.
func versioned(options *metav1.DeleteOptions) bool {
	p := options.Preconditions
	return p != nil && p.ResourceVersion != nil && *p.ResourceVersion != ""
}

// ifUnchanged returns options that delete the pod only as it is now.
func ifUnchanged(options *metav1.DeleteOptions, p *corev1.Pod) *metav1.DeleteOptions {
	out := options.DeepCopy()
	if out.Preconditions == nil {
		out.Preconditions = &metav1.Preconditions{}
	}
	out.Preconditions.ResourceVersion = ptr.To(p.ResourceVersion)
	return out
}

// markAndDelete writes into the pod's status why it goes, then deletes it.
func (r *EvictionREST) markAndDelete(ctx context.Context, name string, options *metav1.DeleteOptions) error {
	if !dryrun.IsDryRun(options.DryRun) {
		mark := func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
			p := old.(*corev1.Pod).DeepCopy()
			if err := expected(options.Preconditions, p); err != nil {
				return nil, err
			}
			p.Status.Conditions = disrupted(p.Status.Conditions, p.Generation, metav1.Now())
			return p, nil
		}
		marked, _, err := r.podStatus.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, mark),
			rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		if versioned(options) {
			options = ifUnchanged(options, marked.(*corev1.Pod))
		}
	}
	_, _, err := r.pods.Delete(ctx, name, rest.ValidateAllObjectFunc, options)
	return err
}

// expected says whether the pod is the one that the request means.
func expected(p *metav1.Preconditions, pod *corev1.Pod) error {
	if p == nil {
		return nil
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "Pod"}, pod.Name, fmt.Errorf(format, args...))
	}
	if uid := p.UID; uid != nil && *uid != "" && *uid != pod.UID {
		return conflict(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and "+
				"then recreated",
			*uid, pod.UID,
		)
	}
	if v := p.ResourceVersion; v != nil && *v != "" && *v != pod.ResourceVersion {
		return conflict(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might "+
				"have been modified",
			*v, pod.ResourceVersion,
		)
	}
	return nil
}

// disrupted returns the conditions with DisruptionTarget true. The time is that
// of the last change from false to true.
func disrupted(conditions []corev1.PodCondition, generation int64, now metav1.Time) []corev1.PodCondition {
	target := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: generation,
		Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: now,
	}
	out := make([]corev1.PodCondition, 0, len(conditions)+1)
	found := false
	for _, c := range conditions {
		if c.Type == corev1.DisruptionTarget {
			found = true
			if c.Status == target.Status {
				target.LastTransitionTime = c.LastTransitionTime
			}
			c = target
		}
		out = append(out, c)
	}
	if !found {
		out = append(out, target)
	}
	return out
}
