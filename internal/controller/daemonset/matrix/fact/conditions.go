package fact

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of the conditions.
const (
	ConditionAvailable   appsv1.DaemonSetConditionType = "Available"
	ConditionProgressing appsv1.DaemonSetConditionType = "Progressing"
)

// The reasons of the conditions.
const (
	// NoNodesSelected: there is nothing to run; both conditions are True.
	NoNodesSelected = "NoNodesSelected"
	// AllNodesAvailable: every selected node has an available pod.
	AllNodesAvailable = "AllNodesAvailable"
	// NodesUnavailable: some selected nodes have none; Available is False.
	NodesUnavailable = "NodesUnavailable"
	// DaemonSetUpdated: every selected node has a pod of the current revision.
	DaemonSetUpdated = "DaemonSetUpdated"
	// RolloutInProgress: some have not yet, and something moved lately.
	RolloutInProgress = "RolloutInProgress"
	// WaitingForDeletion: the strategy is OnDelete and old pods are left;
	// Progressing is False.
	WaitingForDeletion = "WaitingForDeletion"
	// BudgetExhausted: nothing moves because maxUnavailable or maxSurge is used
	// up; Progressing is False.
	BudgetExhausted = "BudgetExhausted"
	// FollowsPolicy and the name of a rollout's phase behind it: a policy says how far
	// the rollout goes. Progressing is True while nodes are changed or watched.
	FollowsPolicy = "RolloutPolicy"
	// NotStored is the reason while the API does not hold the rollout yet.
	NotStored = FollowsPolicy + "NotStored"
	// RolloutStalled: nothing moves for another reason; Progressing is False.
	RolloutStalled = "RolloutStalled"
)

// Condition is a status condition without its times. It is comparable.
type Condition struct {
	Status          corev1.ConditionStatus
	Reason, Message string
}

// True is a condition that holds.
func True(reason, message string) Condition { return Condition{corev1.ConditionTrue, reason, message} }

// False is a condition that does not hold.
func False(reason, message string) Condition {
	return Condition{corev1.ConditionFalse, reason, message}
}

// Conditions are those that the matrix computes. The zero value is that of a
// DaemonSet without conditions.
type Conditions struct{ Available, Progressing Condition }

// ConditionsOf reads a DaemonSet's conditions.
func ConditionsOf(s *appsv1.DaemonSetStatus) Conditions {
	var out Conditions
	for i := range s.Conditions {
		c := &s.Conditions[i]
		have := Condition{Status: c.Status, Reason: c.Reason, Message: c.Message}
		switch c.Type {
		case ConditionAvailable:
			out.Available = have
		case ConditionProgressing:
			out.Progressing = have
		}
	}
	return out
}

// Apply writes the conditions into a new list in s; the old list, which may be
// shared, is not changed. Conditions of other types stay as they are, and the
// time of a transition stays unless the condition's status changes now.
func (cs Conditions) Apply(s *appsv1.DaemonSetStatus, now time.Time) {
	next := append(make([]appsv1.DaemonSetCondition, 0, len(s.Conditions)+2), s.Conditions...)
	set := func(t appsv1.DaemonSetConditionType, c Condition) {
		want := appsv1.DaemonSetCondition{
			Type: t, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: metav1.NewTime(now)}
		for i := range next {
			if next[i].Type != t {
				continue
			}
			if next[i].Status == c.Status {
				want.LastTransitionTime = next[i].LastTransitionTime
			}
			next[i] = want
			return
		}
		next = append(next, want)
	}
	set(ConditionAvailable, cs.Available)
	set(ConditionProgressing, cs.Progressing)
	s.Conditions = next
}
