// Package placement decides on which node a pod goes: it narrows the nodes to those the pod names, asks which fit,
// ranks those, and says of every other node why not. When none is left it finds the pods whose removal would make room.
//
//	pod -> the nodes that it names, or all
//	    -> fit   -> the reasons of the first rule that a node fails -> Diagnosis, Message
//	    -> score -> weighted sum, ties by a hash of seed, pod, node -> Node
//	none left: Preempt -> victims on one node, or why that does not help
//
// Work for a pod that names its node does not depend on how many nodes there are. For other pods the search stops when
// enough nodes were found, and the next one starts where it stopped, so that all nodes get their turn. What all nodes
// say to the sorts of pods that were the last not to find enough is kept (answers.go): thousands that wait for a node
// that opens cost as much as nodes change, not as there are. That is not so for a pod with claims, with a spread, or
// that is about other pods.
//
// The package is pure: it reads a cluster and returns values.
package placement
