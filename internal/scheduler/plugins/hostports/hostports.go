// Package hostports is the rule that two pods cannot take the same port of a node.
package hostports

import (
	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// Reason is what a node that fails is reported with.
const Reason = "node(s) didn't have free ports for the requested pod ports"

// Filter is the rule.
var Filter = plugins.Filter{Name: "NodePorts", Prepare: prepare, HelpedBy: cache.NodeAdded | cache.PodRemoved}

func prepare(pod *cache.Pod, _ *cache.Cache) plugins.Check {
	if len(pod.HostPorts) == 0 {
		return nil
	}
	return func(node *cache.Node) plugins.Verdict {
		for _, port := range pod.HostPorts {
			if node.Ports.Conflicts(port) {
				return plugins.Verdict{Reasons: []string{Reason}}
			}
		}
		return plugins.Verdict{}
	}
}
