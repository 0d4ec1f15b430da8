// Package unschedulable is the rule that a cordoned node takes only pods which tolerate the cordon.
package unschedulable

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
	"github.com/everynode/everynode/internal/scheduler/plugins/tainttoleration"
)

// Reason is what a node that fails is reported with.
const Reason = "node(s) were unschedulable"

// Filter is the rule.
var Filter = plugins.Filter{Name: "NodeUnschedulable", Prepare: prepare, HelpedBy: cache.NodeAdded | cache.TaintsChanged}

var cordon = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func prepare(pod *cache.Pod, _ *cache.Cache) plugins.Check {
	if tainttoleration.Tolerated(&cordon, pod.Object.Spec.Tolerations) {
		return nil
	}
	return func(node *cache.Node) plugins.Verdict {
		if !node.Object.Spec.Unschedulable {
			return plugins.Verdict{}
		}
		return plugins.Verdict{Reasons: []string{Reason}, Hopeless: true}
	}
}
