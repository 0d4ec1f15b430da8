// Package plan decides what a ReplicaSet needs: how many pods to create, which to
// delete, and what its status says. It reads nothing but its arguments.
//
// Pods that are over (Succeeded, Failed) and pods that are being deleted do not
// count as replicas; the next one is made beside a pod that is still on its way
// out.
package plan

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/pod"
)

// burst is how many pods are created or deleted before looking again.
const burst = 500

// Input is what a decision is made from. Nothing in it is changed.
type Input struct {
	Set *appsv1.ReplicaSet
	// Pods are all that belong to the set, whatever became of them.
	Pods []*corev1.Pod
	// Related are the pods of every set with the same owner, of this one too: of two
	// pods on a node, one is deleted before a pod that is alone on its node. They
	// are needed if there are TooMany pods.
	Related []*corev1.Pod
	Now     time.Time
	// NoTerminating says that the set's status has no number of pods that are on their way out.
	NoTerminating bool
}

// Change is what to do so that there are as many pods as wanted.
type Change struct {
	// Create is how many pods to make.
	Create int
	// Delete are the pods to delete, in this order.
	Delete []*corev1.Pod
	// Reason says why, also if there is nothing to do.
	Reason string
}

// Decide compares the pods that there are with what the set wants.
func Decide(in Input) Change {
	if in.Set.DeletionTimestamp != nil {
		return Change{Reason: "the set is being deleted"}
	}
	have, want := active(in.Pods), int(ptr.Deref(in.Set.Spec.Replicas, 1))
	switch missing := want - len(have); {
	case missing > 0:
		return Change{Create: min(missing, burst), Reason: fmt.Sprintf("%d of %d pods are missing", missing, want)}
	case missing < 0:
		doomed := cheapestFirst(in, have)
		return Change{
			Delete: doomed[:min(-missing, burst)],
			Reason: fmt.Sprintf("%d pods more than the %d wanted", -missing, want),
		}
	}
	return Change{Reason: fmt.Sprintf("there are %d pods, as wanted", want)}
}

// TooMany reports whether the set has more pods than it wants.
func TooMany(in Input) bool { return len(active(in.Pods)) > int(ptr.Deref(in.Set.Spec.Replicas, 1)) }

// active returns the pods that count as replicas.
func active(pods []*corev1.Pod) (out []*corev1.Pod) {
	for _, p := range pods {
		if !pod.IsTerminal(p) && !pod.IsTerminating(p) {
			out = append(out, p)
		}
	}
	return out
}

// Report is what the set's status should say.
type Report struct {
	Status appsv1.ReplicaSetStatus
	// Changed says whether that is news.
	Changed bool
	// Next is when the status changes by the passing of time; zero for never.
	Next time.Time
}

// Observe works out the status from the pods after the change. failure is what went
// wrong in it, nil if nothing did. Pods that do not match are not the set's.
func Observe(in Input, change Change, failure error) Report {
	old := in.Set.Status
	status := appsv1.ReplicaSetStatus{ObservedGeneration: in.Set.Generation, TerminatingReplicas: new(int32)}
	var next time.Time
	selector, err := metav1.LabelSelectorAsSelector(in.Set.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	template := labels.SelectorFromSet(in.Set.Spec.Template.Labels)
	for _, p := range in.Pods {
		switch {
		case pod.IsTerminal(p) || !selector.Matches(labels.Set(p.Labels)):
			continue
		case pod.IsTerminating(p):
			*status.TerminatingReplicas++
			continue
		}
		status.Replicas++
		if template.Matches(labels.Set(p.Labels)) {
			status.FullyLabeledReplicas++
		}
		since, ready := pod.ReadySince(p)
		if !ready {
			continue
		}
		status.ReadyReplicas++
		if pod.IsAvailable(p, in.Set.Spec.MinReadySeconds, in.Now) {
			status.AvailableReplicas++
		} else if since.IsZero() {
			continue // ready nobody knows since when: news of the pod will tell
		} else if at := since.Add(time.Duration(in.Set.Spec.MinReadySeconds) * time.Second); next.IsZero() ||
			at.Before(next) {
			next = at
		}
	}
	if in.NoTerminating {
		status.TerminatingReplicas = nil
	}
	status.Conditions = conditions(in, change, failure)
	return Report{Status: status, Changed: !sameStatus(old, status), Next: next}
}

// conditions carries over what others put there and says whether pods can be made
// and deleted. A failure keeps the words it was first reported with.
func conditions(in Input, change Change, failure error) (out []appsv1.ReplicaSetCondition) {
	for _, c := range in.Set.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure {
			if failure == nil {
				continue
			}
			failure = nil // said already
		}
		out = append(out, c)
	}
	if failure == nil {
		return out
	}
	reason := "FailedDelete"
	if change.Create > 0 {
		reason = "FailedCreate"
	}
	return append(out, appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason, Message: failure.Error(),
		LastTransitionTime: metav1.NewTime(in.Now),
	})
}

func sameStatus(a, b appsv1.ReplicaSetStatus) bool {
	if a.Replicas != b.Replicas || a.FullyLabeledReplicas != b.FullyLabeledReplicas ||
		a.ReadyReplicas != b.ReadyReplicas ||
		a.AvailableReplicas != b.AvailableReplicas || !ptr.Equal(a.TerminatingReplicas, b.TerminatingReplicas) ||
		a.ObservedGeneration != b.ObservedGeneration || len(a.Conditions) != len(b.Conditions) {
		return false
	}
	for i := range a.Conditions {
		if a.Conditions[i].Type != b.Conditions[i].Type {
			return false
		}
	}
	return true
}
