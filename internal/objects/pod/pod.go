// Package pod answers questions of fact about a Pod: is it ready, is it over,
// which node is it meant for. It reads nothing but its arguments; time is one of
// them.
package pod

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition returns the pod's condition of the given type, or nil.
func Condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether the pod's Ready condition is True.
func IsReady(p *corev1.Pod) bool {
	c := Condition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// ReadySince returns when the pod became ready. The second result is false
// while it is not ready. A ready pod without a transition time gives the zero
// time.
func ReadySince(p *corev1.Pod) (time.Time, bool) {
	c := Condition(p, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// IsAvailable reports whether the pod has been ready for at least minReadySeconds
// at the time now. With a positive minReadySeconds a ready pod whose transition
// time is unknown is not available.
func IsAvailable(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	since, ready := ReadySince(p)
	if !ready {
		return false
	}
	if minReadySeconds <= 0 {
		return true
	}
	wait := time.Duration(minReadySeconds) * time.Second
	return !since.IsZero() && !since.Add(wait).After(now)
}

// IsTerminating reports whether the pod's deletion has been asked for.
func IsTerminating(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// IsTerminal reports whether the pod's containers are over for good: its phase is
// Succeeded or Failed.
func IsTerminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// IsBound reports whether the pod has been given to a node.
func IsBound(p *corev1.Pod) bool { return p.Spec.NodeName != "" }

// Unschedulable is the condition by which the scheduler says that it finds no node for the pod; nil if it does not.
func Unschedulable(p *corev1.Pod) *corev1.PodCondition {
	c := Condition(p, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
		return nil
	}
	return c
}

// Gates are the scheduling gates that keep the pod from being bound, each by its name; "" if there is none.
func Gates(p *corev1.Pod) string {
	names := make([]string, 0, len(p.Spec.SchedulingGates))
	for _, g := range p.Spec.SchedulingGates {
		names = append(names, g.Name)
	}
	return strings.Join(names, ", ")
}

// TargetNode returns the node the pod runs on or is meant for: spec.nodeName,
// else the one name that a required node affinity on the field metadata.name
// allows. It returns "" when the pod names no single node.
func TargetNode(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}
