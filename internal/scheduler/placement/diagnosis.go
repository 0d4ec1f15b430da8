package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// NoNodes is the message when there is no node at all.
const NoNodes = "no nodes available to schedule pods"

// Failure is why one node does not fit.
type Failure struct {
	Node    string
	Verdict plugins.Verdict

	filter int
}

// Diagnosis explains why a pod fits on no node.
type Diagnosis struct {
	// Total is the number of nodes.
	Total int
	// Failures are the nodes that were looked at and do not fit.
	Failures []Failure
	// Narrowed are the only nodes that the pod names; nil if it names none.
	Narrowed []string
	// HelpedBy is the set of changes that may help.
	HelpedBy cache.Change

	narrowedBy string
}

func (d *Diagnosis) add(failure Failure) { d.Failures = append(d.Failures, failure) }

// Message is the text for the pod's event and condition. afterwards, if not empty, tells what preemption found.
func (d *Diagnosis) Message(afterwards string) string {
	if d.Total == 0 {
		return NoNodes
	}
	if d.Narrowed != nil && len(d.Narrowed) == 0 {
		return aggregate(d.Total, nil, "pod affinity terms conflict", afterwards)
	}
	counts := map[string]int{}
	for _, failure := range d.Failures {
		for _, reason := range failure.Verdict.Reasons {
			counts[reason]++
		}
	}
	if rest := d.Total - len(d.Failures); d.Narrowed != nil && rest > 0 {
		counts[fmt.Sprintf("node(s) didn't satisfy plugin(s) [%s]", d.narrowedBy)] += rest
	}
	return aggregate(d.Total, counts, "", afterwards)
}

// aggregate renders counted reasons; the lines are sorted as text, so a count of 10 comes before one of 2.
func aggregate(total int, counts map[string]int, instead, afterwards string) string {
	text := fmt.Sprintf("0/%d nodes are available:", total)
	reasons := make([]string, 0, len(counts))
	for reason, count := range counts {
		reasons = append(reasons, fmt.Sprintf("%d %s", count, reason))
	}
	slices.Sort(reasons)
	switch {
	case instead != "":
		text += " " + instead + "."
	case len(reasons) > 0:
		text += " " + strings.Join(reasons, ", ") + "."
	}
	if afterwards != "" {
		text += " " + afterwards
	}
	return text
}
