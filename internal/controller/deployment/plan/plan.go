package plan

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// Input is what a decision is made from. Nothing in it is changed.
type Input struct {
	Deployment *appsv1.Deployment
	// Sets are the ReplicaSets that belong to the Deployment.
	Sets []*appsv1.ReplicaSet
	// Pods are those of the sets; needed for the strategy Recreate only.
	Pods []*corev1.Pod
	Now  time.Time
}

// Update is a change of a ReplicaSet.
type Update struct {
	// Set is what it becomes, Before what it was.
	Set, Before *appsv1.ReplicaSet
	Reason      string
}

// Plan says what to do, in the order of its fields.
type Plan struct {
	// Create is the ReplicaSet to make; nil if there is none to make.
	Create *appsv1.ReplicaSet
	// Update are the sets to change, at most one entry for each.
	Update []Update
	// Delete are old sets beyond what the history keeps.
	Delete []*appsv1.ReplicaSet
	// Revision is the Deployment's number of its present template; empty if not known.
	Revision string
	// Status is what the Deployment's status should say.
	Status appsv1.DeploymentStatus
	// Changed says whether Status or Revision is news.
	Changed bool
	// Next is when the status changes by the passing of time; zero for never.
	Next time.Time
	// Reason says why, also if there is nothing to do.
	Reason string
}

// rollout is a decision in the making.
type rollout struct {
	in     Input
	d      *appsv1.Deployment
	limits limits
	// sets are all, the oldest first; fresh is the one with the present template,
	// nil if there is none. It is among sets.
	sets  []*set
	fresh *set
	plan  Plan
	// conditions are the Deployment's, as far as decided.
	conditions []appsv1.DeploymentCondition
}

// Decide makes the plan.
func Decide(in Input) Plan {
	r := newRollout(in)
	if r.d.DeletionTimestamp != nil {
		r.explain("the Deployment is being deleted")
		r.plan.Status = r.observe()
		r.finish()
		return r.plan
	}
	r.notePause()
	r.number()
	switch {
	case r.d.Spec.Paused:
		r.scale()
		r.cleanUp()
		r.explain("the Deployment is paused")
		r.plan.Status = r.observe()
	case r.scaled():
		r.scale()
		r.plan.Status = r.observe()
	case r.d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		r.recreate()
		r.plan.Status = r.judge()
	default:
		r.roll()
		r.plan.Status = r.judge()
	}
	r.finish()
	return r.plan
}

// finish turns what was decided about the sets into actions.
func (r *rollout) finish() {
	for _, s := range r.sets {
		if next := s.result(); next != nil && s.created {
			r.plan.Create = next
		} else if next != nil {
			r.plan.Update = append(r.plan.Update, Update{Set: next, Before: s.before, Reason: s.reason})
		}
	}
	r.plan.Changed = !apiequality.Semantic.DeepEqual(r.d.Status, r.plan.Status) ||
		r.plan.Revision != "" && r.plan.Revision != r.d.Annotations[RevisionAnnotation]
	r.explain("nothing to do")
}

// explain notes why; the first explanation stands.
func (r *rollout) explain(format string, args ...any) {
	if r.plan.Reason == "" {
		r.plan.Reason = fmt.Sprintf(format, args...)
	}
}
