package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/fit"
)

// NoNodes is the message when there is no node at all.
const NoNodes = "no nodes available to schedule pods"

// Failure is why one node does not fit.
type Failure struct {
	Node    string
	Reasons []fit.Reason // of the first rule that it fails
}

// Hopeless reports whether removing pods from the node would not help.
func (f *Failure) Hopeless() bool {
	return slices.ContainsFunc(f.Reasons, func(r fit.Reason) bool { return r.Hopeless })
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
	HelpedBy fit.Change
	// Unbound is why the pod fits nowhere as its claims are; "" if that is not so.
	Unbound string
}

func (d *Diagnosis) add(node string, reasons []fit.Reason) {
	d.Failures = append(d.Failures, Failure{node, reasons})
}

// findHelp fills in which changes may help: those of the rules that failed, and a new node.
func (d *Diagnosis) findHelp() {
	d.HelpedBy = fit.NodeAdded
	for _, failure := range d.Failures {
		d.HelpedBy |= failure.Reasons[0].Rule.HelpedBy()
	}
}

// Message is the text for the pod's event and condition. afterwards, if not empty, tells what preemption found.
func (d *Diagnosis) Message(afterwards string) string {
	if d.Total == 0 {
		return NoNodes
	}
	if d.Unbound != "" {
		return aggregate(d.Total, nil, d.Unbound, afterwards)
	}
	if d.Narrowed != nil && len(d.Narrowed) == 0 {
		return aggregate(d.Total, nil, "pod affinity terms conflict", afterwards)
	}
	counts := map[string]int{}
	for _, failure := range d.Failures {
		for _, reason := range failure.Reasons {
			counts[reason.Text]++
		}
	}
	if rest := d.Total - len(d.Failures); d.Narrowed != nil && rest > 0 {
		counts[fmt.Sprintf("node(s) didn't satisfy plugin(s) [%s]", fit.NodeAffinity)] += rest
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
