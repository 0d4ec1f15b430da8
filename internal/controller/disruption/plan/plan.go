// Package plan decides what a PodDisruptionBudget allows: how many of its pods may
// be evicted now, given the pods, what controls them, and the evictions under way.
package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/internal/objects/pod"
)

// DeletionTimeout is how long an eviction that was allowed counts against the budget
// before its pod is deleted. After that the eviction is taken to have failed.
const DeletionTimeout = 2 * time.Minute

// Input is what a decision is made on. None of it is changed.
type Input struct {
	Budget *policyv1.PodDisruptionBudget
	// Pods are those in the budget's namespace that its selector matches.
	Pods []corev1.Pod
	// Owners hold the pods' controllers, as far as they exist. A budget that
	// does not need them (see NeedsOwners) can do without.
	Owners Owners
	Now    time.Time
}

// Result is the budget's status and what there is to say about it.
type Result struct {
	Status policyv1.PodDisruptionBudgetStatus
	// Changed says whether Status differs from the budget's own.
	Changed bool
	// Next is when to decide again without any news, zero for never.
	Next time.Time
	// Overdue are pods whose eviction was allowed but that were not deleted in time.
	Overdue []*corev1.Pod
	// Unmanaged is the number of pods without a controller, if that matters to the budget.
	Unmanaged int
	// Err is why no number can be given. Status then allows no disruption.
	Err error
}

// Decide computes the budget's status.
func Decide(in Input) Result {
	want, err := expect(in)
	if err != nil {
		return failed(in, err)
	}
	r := Result{Unmanaged: want.unmanaged}
	disrupted := r.underWay(in)
	healthy := int32(0)
	for i := range in.Pods {
		p := &in.Pods[i]
		if _, going := disrupted[p.Name]; !going && !pod.IsTerminating(p) && pod.IsReady(p) {
			healthy++
		}
	}
	allowed := max(healthy-want.healthy, 0)
	if !want.grants {
		allowed = 0
	}
	r.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: in.Budget.Generation,
		DisruptedPods:      disrupted,
		DisruptionsAllowed: allowed,
		CurrentHealthy:     healthy,
		DesiredHealthy:     want.healthy,
		ExpectedPods:       want.pods,
	}
	condition := metav1.Condition{Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason}
	if allowed > 0 {
		condition.Status, condition.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	r.conclude(in, condition)
	return r
}

// failed allows nothing and says why; the rest of the status stays as it was.
func failed(in Input, err error) Result {
	r := Result{Err: err, Status: *in.Budget.Status.DeepCopy()}
	r.Status.DisruptionsAllowed = 0
	r.conclude(in, metav1.Condition{
		Status:  metav1.ConditionFalse,
		Reason:  policyv1.SyncFailedReason,
		Message: err.Error(),
	})
	return r
}

// conclude adds the condition to the status and compares that with the budget's own.
func (r *Result) conclude(in Input, condition metav1.Condition) {
	condition.Type = policyv1.DisruptionAllowedCondition
	condition.ObservedGeneration = r.Status.ObservedGeneration
	condition.LastTransitionTime = metav1.NewTime(in.Now)
	r.Status.Conditions = slices.Clone(in.Budget.Status.Conditions)
	meta.SetStatusCondition(&r.Status.Conditions, condition)
	r.Changed = !equality.Semantic.DeepEqual(r.Status, in.Budget.Status)
}

// underWay returns the evictions that were allowed and whose pods are still to be
// deleted. It notes those that took too long, and when the next one will have.
func (r *Result) underWay(in Input) map[string]metav1.Time {
	var disrupted map[string]metav1.Time
	for i := range in.Pods {
		p := &in.Pods[i]
		since, found := in.Budget.Status.DisruptedPods[p.Name]
		if !found || pod.IsTerminating(p) {
			continue
		}
		deadline := since.Add(DeletionTimeout)
		if !in.Now.Before(deadline) {
			r.Overdue = append(r.Overdue, p)
			continue
		}
		if r.Next.IsZero() || deadline.Before(r.Next) {
			r.Next = deadline
		}
		if disrupted == nil {
			disrupted = map[string]metav1.Time{}
		}
		disrupted[p.Name] = since
	}
	return disrupted
}

// expectation is how many pods there should be, and how many of them healthy.
type expectation struct {
	pods, healthy int32
	unmanaged     int
	// grants is false if nothing may be disrupted whatever the numbers are: the pods
	// are yet to come, or a share was asked of pods that nobody replaces, which
	// would be a share of fewer pods after each eviction.
	grants bool
}

// NeedsOwners says whether the budget is a matter of the pods' controllers.
func NeedsOwners(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.String
}

func expect(in Input) (expectation, error) {
	spec := &in.Budget.Spec
	if !NeedsOwners(in.Budget) {
		e := expectation{pods: int32(len(in.Pods)), grants: len(in.Pods) > 0}
		if spec.MinAvailable == nil {
			return expectation{}, nil // it asks for nothing and grants nothing
		}
		e.healthy = spec.MinAvailable.IntVal
		return e, nil
	}
	scale, unmanaged, err := in.Owners.scale(in.Pods)
	if err != nil {
		return expectation{}, err
	}
	total := min(scale+int64(unmanaged), math.MaxInt32)
	e := expectation{pods: int32(total), unmanaged: unmanaged, grants: scale > 0}
	amount := spec.MaxUnavailable
	if amount == nil {
		amount = spec.MinAvailable
	}
	// Both round up: half a pod more that is available, or half a pod more that
	// may be unavailable, since a budget that allows nothing stops every drain.
	n, err := intstr.GetScaledValueFromIntOrPercent(amount, int(total), true)
	if err != nil {
		return expectation{}, fmt.Errorf("read the number of pods %q: %w", amount.String(), err)
	}
	e.healthy = int32(n)
	if spec.MaxUnavailable != nil {
		e.healthy = int32(max(total-int64(n), 0))
	}
	return e, nil
}
