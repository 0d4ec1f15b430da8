// Package spread is the preference for the node that runs the fewest pods of the same controller, so that the pods of a
// ReplicaSet do not end up on one node.
package spread

import (
	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// Scorer is the rule.
var Scorer = plugins.Scorer{Name: "ControllerSpread", Weight: 2, Prepare: score}

func score(pod *cache.Pod, nodes []*cache.Node, _ *cache.Cache) []int64 {
	if pod.Controller == "" {
		return nil
	}
	siblings := make([]int64, len(nodes))
	for i, node := range nodes {
		siblings[i] = int64(node.Controlled[pod.Controller])
	}
	return plugins.Normalize(siblings, true)
}
