// Package nodename is the rule that a pod which names its node runs nowhere else.
package nodename

import (
	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// Reason is what a node that fails is reported with.
const Reason = "node(s) didn't match the requested node name"

// Filter is the rule.
var Filter = plugins.Filter{Name: "NodeName", Prepare: prepare, HelpedBy: cache.NodeAdded}

func prepare(pod *cache.Pod, _ *cache.Cache) plugins.Check {
	wanted := pod.Object.Spec.NodeName
	if wanted == "" {
		return nil
	}
	return func(node *cache.Node) plugins.Verdict {
		if node.Name == wanted {
			return plugins.Verdict{}
		}
		return plugins.Verdict{Reasons: []string{Reason}, Hopeless: true}
	}
}
