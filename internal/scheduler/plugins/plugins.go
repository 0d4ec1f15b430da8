// Package plugins holds the form of a scheduling rule. Each rule is a folder below this one with pure functions; the
// scheduler's registry lists them in order.
//
// A rule is prepared once per pod and then asked once per node, so that parsing is not repeated for each node and a
// rule that does not concern the pod costs nothing.
package plugins

import (
	"github.com/everynode/everynode/internal/scheduler/cache"
)

// Filter is a rule that a node meets or not.
type Filter struct {
	// Name is the rule's name in messages and logs.
	Name string
	// Prepare returns the check for this pod, nil if every node passes. Rules about one node alone do not look at the
	// cache.
	Prepare func(*cache.Pod, *cache.Cache) Check
	// HelpedBy is the set of changes after which a node that failed may pass.
	HelpedBy cache.Change
}

// Check asks whether a pod may be on the node.
type Check func(*cache.Node) Verdict

// Verdict is the answer of a rule for one node. The zero value means that the node passes.
type Verdict struct {
	// Reasons say why not, in the words that the pod's event and condition show.
	Reasons []string
	// Hopeless: removing pods from the node would not help.
	Hopeless bool
}

// Passed reports whether the node passes.
func (v Verdict) Passed() bool { return len(v.Reasons) == 0 }

// Narrower is a rule that names the only nodes that can pass, so that the others need not be looked at.
type Narrower struct {
	// Name is the rule's name in messages.
	Name string
	// Nodes returns the names, and false if the pod is not limited to named nodes.
	Nodes func(*cache.Pod) ([]string, bool)
}

// Scorer is a rule that ranks nodes that passed all filters.
type Scorer struct {
	Name string
	// Weight multiplies the score.
	Weight int64
	// Prepare returns the score of each of the given nodes, 0 to MaxScore; nil if the pod ranks all alike.
	Prepare func(*cache.Pod, []*cache.Node, *cache.Cache) []int64
}

// MaxScore is the best score of one rule for one node.
const MaxScore int64 = 100

// Normalize stretches raw scores to 0..MaxScore with the highest raw score as MaxScore; reverse turns them round so
// that the lowest raw score is best. Raw scores are not negative. When all are 0 the result is alike for all nodes.
func Normalize(raw []int64, reverse bool) []int64 {
	var highest int64
	for _, score := range raw {
		highest = max(highest, score)
	}
	for i, score := range raw {
		scaled := int64(0)
		if highest > 0 {
			scaled = score * MaxScore / highest
		}
		if reverse {
			scaled = MaxScore - scaled
		}
		raw[i] = scaled
	}
	return raw
}
