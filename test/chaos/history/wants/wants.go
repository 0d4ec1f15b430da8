// Package wants says on which nodes a DaemonSet wants pods, and how many an update may take at once.
package wants

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Fit says what a DaemonSet wants of a node.
type Fit int

// What it can want.
const (
	Unfit     Fit = iota // no pod may be there
	MayStay              // a pod that is there stays
	ShouldRun            // there is to be one
)

// Judge reads node selectors and taints; the workload uses nothing else.
func Judge(d *appsv1.DaemonSet, n *corev1.Node) Fit {
	for key, value := range d.Spec.Template.Spec.NodeSelector {
		if n.Labels[key] != value {
			return Unfit
		}
	}
	out := ShouldRun
	for _, taint := range n.Spec.Taints {
		switch {
		case taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerated(d, taint):
		case taint.Effect == corev1.TaintEffectNoExecute:
			return Unfit
		default:
			out = MayStay
		}
	}
	return out
}

// starting is the taint of a node that opens when its daemons are there: a daemon may be there before it is wanted.
const starting = "everynode.io/starting"

func tolerated(d *appsv1.DaemonSet, taint corev1.Taint) bool {
	switch taint.Key {
	case starting:
		return true
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		if taint.Effect == corev1.TaintEffectNoExecute {
			return true
		}
	case corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure,
		corev1.TaintNodeUnschedulable:
		if taint.Effect == corev1.TaintEffectNoSchedule {
			return true
		}
	}
	for _, t := range d.Spec.Template.Spec.Tolerations {
		if t.Key == taint.Key && t.Operator == corev1.TolerationOpExists && (t.Effect == "" || t.Effect == taint.Effect) {
			return true
		}
	}
	return false
}

// Budget is what an update may take at once.
type Budget struct{ Unavailable, Surge int }

// BudgetOf is the DaemonSet's, of so many desired nodes.
func BudgetOf(d *appsv1.DaemonSet, desired int) Budget {
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType || d.Spec.UpdateStrategy.RollingUpdate == nil {
		return Budget{}
	}
	r := d.Spec.UpdateStrategy.RollingUpdate
	b := Budget{Unavailable: Scaled(r.MaxUnavailable, desired), Surge: Scaled(r.MaxSurge, desired)}
	if b.Unavailable == 0 && b.Surge == 0 {
		b.Unavailable = 1
	}
	return b
}

// Scaled rounds percentages up.
func Scaled(v *intstr.IntOrString, total int) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, total, true)
	if err != nil {
		return 0
	}
	return n
}

// Surges reports whether an update puts new pods beside old ones.
func Surges(d *appsv1.DaemonSet) bool { return BudgetOf(d, 100).Surge > 0 }

// Numbers tells of a status in one line.
func Numbers(s appsv1.DaemonSetStatus) string {
	return fmt.Sprintf("generation %d, desired %d, current %d, misscheduled %d, ready %d, "+
		"updated %d, available %d, unavailable %d",
		s.ObservedGeneration, s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberMisscheduled, s.NumberReady,
		s.UpdatedNumberScheduled, s.NumberAvailable, s.NumberUnavailable)
}
