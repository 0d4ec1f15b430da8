// Package survey tells from lists of objects where each DaemonSet stands on each node, and what would fit where. It asks
// the cores that the DaemonSet controller and the scheduler ask (matrix with its course, history, fit), so a command that
// explains says what they decide. It is pure, and changes nothing: lists go in, answers come out.
//
//	Objects  what was read from the API
//	Survey   the same, in order
//	View     one DaemonSet: its policy, its rollout, and where each node stands (Standing)
//
// A DaemonSet without a policy is looked at as if it had one of a single step that never halts.
package survey
