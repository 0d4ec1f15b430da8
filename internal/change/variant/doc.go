// Package variant decides how the pods of a DaemonSet differ from node to node: which DaemonSetVariant a node has, what
// its patch makes of the template, and what its formulas give. It has no clock and no client.
//
// A Set are the variants of one DaemonSet, at one time. It has an ID, which is a part of the names of revisions, and a
// digest. On a template it becomes a Molds, and that says for each node what its pod is to be like: an Outcome. A pod
// carries the Mark of the one that it was made by: so everybody knows if another would be the same.
package variant
