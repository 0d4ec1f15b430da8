package fit

import (
	"github.com/everynode/everynode/internal/fit/nodeaffinity"
)

// What a node is reported with that the pod does not name, or does not select.
const (
	TextNodeName     = "node(s) didn't match the requested node name"
	TextNodeAffinity = "node(s) didn't match Pod's node affinity/selector"
)

// checkName: a pod that names its node runs nowhere else.
func checkName(q *Question, node *trialNode) []Reason {
	if wanted := q.spec().NodeName; wanted != "" && wanted != node.Name {
		return fails(NodeName, TextNodeName, wanted, true)
	}
	return nil
}

// checkNodeAffinity: a node must match the pod's node selector and required node affinity.
func checkNodeAffinity(q *Question, node *trialNode) []Reason {
	if q.selects(node.Node) {
		return nil
	}
	return fails(NodeAffinity, TextNodeAffinity, "", true)
}

func (q *Question) selects(node *Node) bool {
	if q.selection == nil {
		q.selection = nodeaffinity.Read(q.spec())
	}
	return q.selection.Matches(node.Name, node.Labels)
}
