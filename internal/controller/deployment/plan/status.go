package plan

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Reasons of conditions.
const (
	reasonCreated      = "NewReplicaSetCreated"
	reasonFound        = "FoundNewReplicaSet"
	reasonUpdated      = "ReplicaSetUpdated"
	reasonAvailable    = "NewReplicaSetAvailable"
	reasonTimedOut     = "ProgressDeadlineExceeded"
	reasonPaused       = "DeploymentPaused"
	reasonResumed      = "DeploymentResumed"
	reasonCreateError  = "ReplicaSetCreateError"
	reasonEnough       = "MinimumReplicasAvailable"
	reasonNotEnough    = "MinimumReplicasUnavailable"
	enoughMessage      = "Deployment has minimum availability."
	notEnoughMessage   = "Deployment does not have minimum availability."
	pausedMessage      = "Deployment is paused"
	resumedMessage     = "Deployment is resumed"
	createErrorMessage = "Failed to create new replica set %q: %v"
)

// observe works out the status without judging progress.
func (r *rollout) observe() appsv1.DeploymentStatus {
	status := appsv1.DeploymentStatus{
		ObservedGeneration: r.d.Generation, CollisionCount: r.d.Status.CollisionCount, TerminatingReplicas: new(int32),
	}
	for _, s := range r.sets {
		have := s.before.Status
		status.Replicas += have.Replicas
		status.ReadyReplicas += have.ReadyReplicas
		status.AvailableReplicas += have.AvailableReplicas
		switch {
		case s.created || status.TerminatingReplicas == nil:
		case have.TerminatingReplicas == nil:
			status.TerminatingReplicas = nil // not known of all, so not known
		default:
			*status.TerminatingReplicas += *have.TerminatingReplicas
		}
	}
	if r.fresh != nil {
		status.UpdatedReplicas = r.fresh.before.Status.Replicas
	}
	status.UnavailableReplicas = max(0, total(r.sets)-status.AvailableReplicas)
	if status.AvailableReplicas >= r.limits.least() {
		r.set(appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonEnough, enoughMessage)
	} else {
		r.set(appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonNotEnough, notEnoughMessage)
	}
	status.Conditions = slices.Clone(r.conditions)
	return status
}

// judge works out the status of a rollout: whether it gets on, is done or stands
// still for too long.
func (r *rollout) judge() appsv1.DeploymentStatus {
	status := r.observe()
	if !r.hasDeadline() {
		r.remove(appsv1.DeploymentProgressing)
	} else if current := r.progressing(); status.Replicas != status.UpdatedReplicas || current == nil ||
		current.Reason != reasonAvailable {
		r.judgeProgress(status)
	}
	r.moveFailure()
	status.Conditions = r.conditions
	return status
}

func (r *rollout) judgeProgress(status appsv1.DeploymentStatus) {
	subject := fmt.Sprintf("Deployment %q", r.d.Name)
	if r.fresh != nil {
		subject = fmt.Sprintf("ReplicaSet %q", r.fresh.before.Name)
	}
	current := r.progressing()
	switch {
	case r.complete(status):
		r.progress(corev1.ConditionTrue, reasonAvailable, "%s has successfully progressed.", subject)
		return
	case progressed(r.d.Status, status):
		// Written again even if it reads the same: the deadline counts from here.
		r.remove(appsv1.DeploymentProgressing)
		r.progress(corev1.ConditionTrue, reasonUpdated, "%s is progressing.", subject)
		if current != nil && current.Status == corev1.ConditionTrue {
			r.progressing().LastTransitionTime = current.LastTransitionTime
		}
	case current != nil && current.Reason != reasonAvailable && current.Reason != reasonTimedOut &&
		r.deadline(current).Before(r.in.Now):
		r.progress(corev1.ConditionFalse, reasonTimedOut, "%s has timed out progressing.", subject)
	}
	if c := r.progressing(); c != nil && c.Reason != reasonTimedOut && c.Reason != reasonAvailable {
		r.plan.Next = r.deadline(c).Add(time.Second) // times in objects are whole seconds
	}
}

func (r *rollout) hasDeadline() bool {
	return r.d.Spec.ProgressDeadlineSeconds != nil && *r.d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

func (r *rollout) deadline(c *appsv1.DeploymentCondition) time.Time {
	return c.LastUpdateTime.Add(time.Duration(*r.d.Spec.ProgressDeadlineSeconds) * time.Second)
}

// complete reports whether only pods of the present template are left, and all serve.
func (r *rollout) complete(s appsv1.DeploymentStatus) bool {
	return s.UpdatedReplicas == r.limits.replicas && s.Replicas == r.limits.replicas &&
		s.AvailableReplicas == r.limits.replicas
}

// progressed reports whether a rollout got on between two statuses.
func progressed(before, now appsv1.DeploymentStatus) bool {
	return now.UpdatedReplicas > before.UpdatedReplicas || now.ReadyReplicas > before.ReadyReplicas ||
		now.AvailableReplicas > before.AvailableReplicas ||
		now.Replicas-now.UpdatedReplicas < before.Replicas-before.UpdatedReplicas
}

// notePause says in the condition that a pause began or ended. That progress had
// stopped before stays.
func (r *rollout) notePause() {
	if !r.hasDeadline() {
		return
	}
	current := r.progressing()
	if current != nil && current.Reason == reasonTimedOut {
		return
	}
	paused := current != nil && current.Reason == reasonPaused
	switch {
	case r.d.Spec.Paused && !paused:
		r.progress(corev1.ConditionUnknown, reasonPaused, pausedMessage)
	case !r.d.Spec.Paused && paused:
		r.progress(corev1.ConditionUnknown, reasonResumed, resumedMessage)
	}
}

// moveFailure shows that pods cannot be made, those of the new set first.
func (r *rollout) moveFailure() {
	sets := r.old()
	if r.fresh != nil {
		sets = append([]*set{r.fresh}, sets...)
	}
	for _, s := range sets {
		for _, c := range s.before.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				r.set(appsv1.DeploymentReplicaFailure, c.Status, c.Reason, c.Message)
				return
			}
		}
	}
	r.remove(appsv1.DeploymentReplicaFailure)
}

func (r *rollout) progressing() *appsv1.DeploymentCondition {
	return find(r.conditions, appsv1.DeploymentProgressing)
}

func (r *rollout) progress(status corev1.ConditionStatus, reason, format string, args ...any) {
	if r.hasDeadline() {
		r.set(appsv1.DeploymentProgressing, status, reason, fmt.Sprintf(format, args...))
	}
}

func (r *rollout) set(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) {
	r.conditions = with(r.conditions, appsv1.DeploymentCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastUpdateTime: metav1.NewTime(r.in.Now), LastTransitionTime: metav1.NewTime(r.in.Now),
	})
}

func (r *rollout) remove(kind appsv1.DeploymentConditionType) {
	r.conditions = slices.DeleteFunc(slices.Clone(r.conditions), func(c appsv1.DeploymentCondition) bool {
		return c.Type == kind
	})
}

func find(conditions []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// with returns the conditions with one set. One that says the same for the same
// reason stays as it is.
func with(conditions []appsv1.DeploymentCondition, c appsv1.DeploymentCondition) []appsv1.DeploymentCondition {
	current := find(conditions, c.Type)
	if current == nil {
		return append(slices.Clone(conditions), c)
	}
	if current.Status == c.Status && current.Reason == c.Reason {
		return conditions
	}
	if current.Status == c.Status {
		c.LastTransitionTime = current.LastTransitionTime
	}
	out := slices.Clone(conditions)
	*find(out, c.Type) = c
	return out
}

// Collided is the status after the name of the new set turned out to be taken: the
// next one will have another.
func Collided(in Input) appsv1.DeploymentStatus {
	status := in.Deployment.Status
	status.CollisionCount = ptr.To(ptr.Deref(status.CollisionCount, 0) + 1)
	return status
}

// NotCreated is the status after the new set could not be made.
func NotCreated(in Input, name string, err error) appsv1.DeploymentStatus {
	r := newRollout(in)
	r.set(
		appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateError, fmt.Sprintf(createErrorMessage, name, err),
	)
	status := in.Deployment.Status
	status.Conditions = r.conditions
	return status
}
