package fit

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/fit/toleration"
)

// What a node is reported with that is cordoned, or has a taint that the pod does not tolerate.
const (
	TextUnschedulable = "node(s) were unschedulable"
	TextTaints        = "node(s) had untolerated taint(s)"
)

var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// checkUnschedulable: a cordoned node takes only pods which tolerate the cordon.
func checkUnschedulable(q *Question, node *trialNode) []Reason {
	if !node.Unschedulable || toleration.Covered(&cordon, q.spec().Tolerations) {
		return nil
	}
	return fails(Unschedulable, TextUnschedulable, "", true)
}

// checkTaints: a pod must tolerate the node's NoSchedule and NoExecute taints.
func checkTaints(q *Question, node *trialNode) []Reason {
	if taint := toleration.Uncovered(node.Taints, q.spec().Tolerations); taint != nil {
		return fails(TaintToleration, TextTaints, taint.ToString(), true)
	}
	return nil
}
