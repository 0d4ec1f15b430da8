// Package survey tells from lists of objects where each DaemonSet stands on each node, and what would fit where. It
// asks the cores that the DaemonSet controller and the scheduler ask (rollouts, matrix with its course, history, fit),
// so a command that explains says what they decide. It is pure, and changes nothing: lists go in, answers come out.
//
//	Objects  what was read from the API
//	Survey   the same, in order
//	Set      one DaemonSet: its revisions, its policy, its rollout
//	Core     what decides about it in the controller, told all that was read
//	View     where it stands on each node (Standing)
//
// A view looks at a DaemonSet without a policy as if it had one of a single step that never halts.
package survey
