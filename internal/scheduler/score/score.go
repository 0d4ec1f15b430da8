// Package score ranks the nodes on which a pod fits. Each rule gives each node a score; what counts is their weighted
// sum.
package score

import (
	"fmt"

	"github.com/everynode/everynode/internal/fit"
)

// MaxScore is the best score of one rule for one node.
const MaxScore int64 = 100

// rule ranks nodes.
type rule struct {
	name string
	// weight multiplies the score.
	weight int64
	// scores returns the score of each of the given nodes, 0 to MaxScore; nil if the pod ranks all alike.
	scores func(*fit.Pod, []*fit.Node, *fit.Cluster) []int64
}

var rules = []rule{
	{"TaintToleration", 3, taints},
	{"NodeAffinity", 2, nodeAffinity},
	{"PodTopologySpread", 2, evenSpread},
	{"InterPodAffinity", 2, podAffinity},
	{"ControllerSpread", 2, siblings},
	{"NodeResourcesFit", 1, leastAllocated},
}

// Nodes returns the weighted sum of all rules for each node: the more, the better.
func Nodes(pod *fit.Pod, nodes []*fit.Node, all *fit.Cluster) []int64 {
	total := make([]int64, len(nodes))
	for _, r := range rules {
		scores := r.scores(pod, nodes, all)
		if scores != nil && len(scores) != len(nodes) {
			panic(fmt.Sprintf("%s gave %d scores for %d nodes", r.name, len(scores), len(nodes)))
		}
		for i, score := range scores {
			total[i] += score * r.weight
		}
	}
	return total
}

// normalize stretches raw scores to 0..MaxScore with the highest raw score as MaxScore; reverse turns them round so
// that the lowest raw score is best. Raw scores are not negative. When all are 0 the result is alike for all nodes.
func normalize(raw []int64, reverse bool) []int64 {
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
