// Package tainttoleration is the rule that a pod must tolerate a node's NoSchedule and NoExecute taints, and had better
// tolerate its PreferNoSchedule taints.
package tainttoleration

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// Reason is what a node that fails is reported with.
const Reason = "node(s) had untolerated taint(s)"

// Filter is the rule for taints that forbid.
var Filter = plugins.Filter{Name: "TaintToleration", Prepare: prepare, HelpedBy: cache.NodeAdded | cache.TaintsChanged}

// Scorer is the rule for taints that only advise: the fewer untolerated, the better.
var Scorer = plugins.Scorer{Name: "TaintToleration", Weight: 3, Prepare: score}

func prepare(pod *cache.Pod, _ *cache.Cache) plugins.Check {
	tolerations := pod.Object.Spec.Tolerations
	return func(node *cache.Node) plugins.Verdict {
		taints := node.Object.Spec.Taints
		for i := range taints {
			if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !Tolerated(&taints[i], tolerations) {
				return plugins.Verdict{Reasons: []string{Reason}, Hopeless: true}
			}
		}
		return plugins.Verdict{}
	}
}

func score(pod *cache.Pod, nodes []*cache.Node, _ *cache.Cache) []int64 {
	var untolerated []int64
	for i, node := range nodes {
		taints := node.Object.Spec.Taints
		for t := range taints {
			if taints[t].Effect != corev1.TaintEffectPreferNoSchedule || Tolerated(&taints[t], pod.Object.Spec.Tolerations) {
				continue
			}
			if untolerated == nil {
				untolerated = make([]int64, len(nodes))
			}
			untolerated[i]++
		}
	}
	if untolerated == nil {
		return nil
	}
	return plugins.Normalize(untolerated, true)
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
