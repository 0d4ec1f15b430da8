package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/fit"
)

// NoNodes is the message when there is no node at all.
const NoNodes = "no nodes available to schedule pods"

// failure is why nodes do not fit.
type failure struct {
	rule  fit.Rule // the first that they fail
	texts []string // its reasons
	// hopeless: removing pods from such a node would not help.
	hopeless bool
}

func failureOf(reasons []fit.Reason) failure {
	f := failure{rule: reasons[0].Rule}
	for i := range reasons {
		f.texts = append(f.texts, reasons[i].Text)
		f.hopeless = f.hopeless || reasons[i].Hopeless
	}
	return f
}

// Diagnosis explains why a pod fits on no node.
type Diagnosis struct {
	// Total is the number of nodes.
	Total int
	// Narrowed are the only nodes that the pod names; nil if it names none.
	Narrowed []string
	// HelpedBy is the set of changes that may help.
	HelpedBy fit.Change
	// Unbound is why the pod fits nowhere as its claims are; "" if that is not so.
	Unbound string

	// failed is how many nodes were looked at and do not fit, and counts how many of them have each reason.
	failed int
	counts map[string]int
	// crowded are those which removing pods may help, and barren how many more there are that have no lesser pods.
	crowded []*fit.Node
	barren  int
}

// add takes up a node that was looked at.
func (d *Diagnosis) add(node *fit.Node, f failure) {
	d.count(f, 1)
	if !f.hopeless {
		d.crowded = append(d.crowded, node)
	}
}

// count takes up that nodes fail so, and which changes may help them.
func (d *Diagnosis) count(f failure, nodes int) {
	if d.counts == nil {
		d.counts = map[string]int{}
	}
	for _, text := range f.texts {
		d.counts[text] += nodes
	}
	d.failed += nodes
	d.HelpedBy |= f.rule.HelpedBy()
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
	counts := maps.Clone(d.counts)
	if rest := d.Total - d.failed; d.Narrowed != nil && rest > 0 {
		if counts == nil {
			counts = map[string]int{}
		}
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
