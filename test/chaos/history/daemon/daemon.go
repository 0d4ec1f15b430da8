// Package daemon reads what a pod says of itself; pure.
package daemon

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TargetOf is the node that a pod runs on or names.
func TargetOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
					return field.Values[0]
				}
			}
		}
	}
	return ""
}

// Ended reports whether a pod has come to its end.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// Occupies reports whether a pod keeps the place on its node.
func Occupies(p *corev1.Pod) bool { return !Ended(p) || p.DeletionTimestamp == nil }

// ReadySince returns since when a pod is ready.
func ReadySince(p *corev1.Pod) (time.Time, bool) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// Available reports whether the pod has been ready for as long as its DaemonSet asks.
func Available(d *appsv1.DaemonSet, p *corev1.Pod, now time.Time) bool {
	since, ready := ReadySince(p)
	return ready && !Ended(p) && !now.Before(since.Add(time.Duration(d.Spec.MinReadySeconds)*time.Second))
}

// Disrupted reports whether a pod says that it is to be evicted.
func Disrupted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// DeletedAt is when the deletion was asked for, to the second.
func DeletedAt(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp == nil {
		return time.Time{}
	}
	at := p.DeletionTimestamp.Time
	if p.DeletionGracePeriodSeconds != nil {
		at = at.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
	}
	return at
}

// Well reports whether a node can have new pods and says that it is ready.
func Well(n *corev1.Node) bool {
	return !n.Spec.Unschedulable && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
