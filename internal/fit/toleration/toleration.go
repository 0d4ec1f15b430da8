// Package toleration knows which taints of a node a pod tolerates. It is pure.
package toleration

import (
	corev1 "k8s.io/api/core/v1"
)

// Uncovered returns the first taint that forbids and is not tolerated, nil if there is none.
func Uncovered(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !Covered(&taints[i], tolerations) {
			return &taints[i]
		}
	}
	return nil
}

// Covered reports whether one of the tolerations covers the taint: its effect and key, where it names them, are the
// taint's, and its value is too unless it asks only that the taint exists.
func Covered(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		switch t.Operator {
		case "", corev1.TolerationOpEqual:
			if t.Value == taint.Value {
				return true
			}
		case corev1.TolerationOpExists:
			return true
		}
	}
	return false
}
