package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// On another Kubernetes the columns are those of the CustomResourceDefinitions, which hold no sums:
// internal/apiserver/definitions.
var policyTable = table.Of(policyRow,
	table.Name,
	table.Column{Name: "Matches", Type: "integer", Description: "How many DaemonSets follow the policy."},
	table.Column{Name: "Waves", Description: "Names of the waves, in their order."},
	table.Column{Name: "Failure", Description: "Of how many nodes a revision may fail, and what happens then."},
	table.Age,
	table.Column{Name: "Selector", Wide: true, Description: "Labels of the DaemonSets that the policy is for."},
	table.Column{Name: "Pace", Wide: true, Description: "How many nodes' changes may begin in a minute."},
)

func policyRow(p *v1alpha1.RolloutPolicy, now time.Time) []any {
	var waves []string
	for i := range p.Spec.Waves {
		waves = append(waves, p.Spec.Waves[i].Name)
	}
	failure := string(p.Spec.Failure.Then)
	if limit := p.Spec.Failure.Max; limit != nil {
		failure += " over " + limit.String()
	}
	pace := table.OrNone("")
	if n := p.Spec.Pace.NodesPerMinute; n != nil {
		pace = fmt.Sprintf("%d/min", *n)
	}
	return []any{
		p.Name, int64(p.Status.MatchedCount), table.OrNone(strings.Join(waves, ",")), failure,
		table.Since(p.CreationTimestamp, now), table.OrAll(p.Spec.Selector), pace,
	}
}

var rolloutTable = table.Of(rolloutRow,
	table.Column{Name: "DaemonSet", Format: "name", Description: "The DaemonSet whose change it is."},
	table.Column{Name: "Phase", Description: "What the rollout does."},
	table.Column{Name: "Step", Description: "The furthest step that has begun."},
	table.Column{Name: "Done", Description: "Nodes that have the target and have soaked, of all nodes."},
	table.Column{Name: "Failed", Type: "integer", Description: "Nodes on which the target failed."},
	table.Column{Name: "Stable", Description: "The last revision that was complete without failing."},
	table.Column{Name: "Target", Description: "The revision that nodes are led to."},
	table.Age,
	table.Column{Name: "Message", Wide: true, Description: "Why."},
)

func rolloutRow(r *v1alpha1.DaemonSetRollout, now time.Time) []any {
	s := &r.Status
	var nodes, done, failed int64
	for i := range s.Steps {
		nodes, done, failed = nodes+int64(s.Steps[i].Nodes), done+int64(s.Steps[i].Done), failed+int64(s.Steps[i].Failed)
	}
	return []any{
		r.Name, table.OrNone(string(s.Phase)), table.OrNone(s.Step), fmt.Sprintf("%d/%d", done, nodes), failed,
		table.OrNone(s.StableRevision), table.OrNone(s.TargetRevision), table.Since(r.CreationTimestamp, now), s.Message,
	}
}
