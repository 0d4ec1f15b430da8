package history

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fit says what a DaemonSet wants of a node.
type fit int

const (
	unfit     fit = iota // no pod may be there
	mayStay              // a pod that is there stays
	shouldRun            // there is to be one
)

// judgeFit reads node selectors and taints; the workload uses nothing else.
func judgeFit(d *appsv1.DaemonSet, n *corev1.Node) fit {
	for key, value := range d.Spec.Template.Spec.NodeSelector {
		if n.Labels[key] != value {
			return unfit
		}
	}
	out := shouldRun
	for _, taint := range n.Spec.Taints {
		switch {
		case taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerated(d, taint):
		case taint.Effect == corev1.TaintEffectNoExecute:
			return unfit
		default:
			out = mayStay
		}
	}
	return out
}

func tolerated(d *appsv1.DaemonSet, taint corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
		if taint.Effect == corev1.TaintEffectNoExecute {
			return true
		}
	case corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable:
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

// budget is what an update may take at once.
type budget struct{ unavailable, surge int }

func budgetOf(d *appsv1.DaemonSet, desired int) budget {
	if d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType || d.Spec.UpdateStrategy.RollingUpdate == nil {
		return budget{}
	}
	r := d.Spec.UpdateStrategy.RollingUpdate
	b := budget{unavailable: scaled(r.MaxUnavailable, desired), surge: scaled(r.MaxSurge, desired)}
	if b.unavailable == 0 && b.surge == 0 {
		b.unavailable = 1
	}
	return b
}

// scaled rounds percentages up.
func scaled(v *intstr.IntOrString, total int) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, total, true)
	if err != nil {
		return 0
	}
	return n
}

func surges(d *appsv1.DaemonSet) bool { return budgetOf(d, 100).surge > 0 }
