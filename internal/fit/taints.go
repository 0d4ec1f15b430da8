package fit

import corev1 "k8s.io/api/core/v1"

// What a node is reported with that is cordoned, or has a taint that the pod does not tolerate.
const (
	TextUnschedulable = "node(s) were unschedulable"
	TextTaints        = "node(s) had untolerated taint(s)"
)

var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// checkUnschedulable: a cordoned node takes only pods which tolerate the cordon.
func checkUnschedulable(q *Question, node *trialNode) []Reason {
	if !node.Unschedulable || Tolerated(&cordon, q.spec().Tolerations) {
		return nil
	}
	return fails(Unschedulable, TextUnschedulable, "", true)
}

// checkTaints: a pod must tolerate the node's NoSchedule and NoExecute taints.
func checkTaints(q *Question, node *trialNode) []Reason {
	if taint := untolerated(node.Taints, q.spec().Tolerations); taint != nil {
		return fails(TaintToleration, TextTaints, taint.ToString(), true)
	}
	return nil
}

// untolerated returns the first taint that forbids and is not tolerated, nil if there is none.
func untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !Tolerated(&taints[i], tolerations) {
			return &taints[i]
		}
	}
	return nil
}

// Tolerated reports whether one of the tolerations covers the taint: its effect and key, where it names them, are the
// taint's, and its value is too unless it asks only that the taint exists.
func Tolerated(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
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
