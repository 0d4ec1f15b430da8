// Package standing says where one node stands in a rollout, and what it counts as there.
//
// An Input is all that this follows from: what became of the DaemonSet on the node (Daemon), and what the course makes
// of it. Classify gives the one State that holds. The table behind State.Counts says what a node in that state counts
// as (Effects), by whose doing its daemon is not available (Cause). Nothing here knows of a second node.
package standing
