package scheduler

import (
	"github.com/everynode/everynode/internal/scheduler/placement"
	"github.com/everynode/everynode/internal/scheduler/plugins"
	"github.com/everynode/everynode/internal/scheduler/plugins/hostports"
	"github.com/everynode/everynode/internal/scheduler/plugins/nodeaffinity"
	"github.com/everynode/everynode/internal/scheduler/plugins/nodename"
	"github.com/everynode/everynode/internal/scheduler/plugins/podaffinity"
	"github.com/everynode/everynode/internal/scheduler/plugins/resources"
	"github.com/everynode/everynode/internal/scheduler/plugins/spread"
	"github.com/everynode/everynode/internal/scheduler/plugins/tainttoleration"
	"github.com/everynode/everynode/internal/scheduler/plugins/topologyspread"
	"github.com/everynode/everynode/internal/scheduler/plugins/unschedulable"
)

// DefaultRules lists the rules in the order in which they are asked. The first filter that a node fails gives the reason
// that users see, so the order is part of the behaviour.
func DefaultRules() placement.Rules {
	return placement.Rules{
		Narrowers: []plugins.Narrower{nodeaffinity.Narrower},
		Filters: []plugins.Filter{
			unschedulable.Filter,
			nodename.Filter,
			tainttoleration.Filter,
			nodeaffinity.Filter,
			hostports.Filter,
			resources.Filter,
			topologyspread.Filter,
			podaffinity.Filter,
		},
		Scorers: []plugins.Scorer{
			tainttoleration.Scorer,
			nodeaffinity.Scorer,
			topologyspread.Scorer,
			podaffinity.Scorer,
			spread.Scorer,
			resources.Scorer,
		},
	}
}
