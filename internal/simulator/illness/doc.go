// Package illness decides what ails simulated nodes and the pods on them: who is ill, with what, and from when to when.
// It is pure: the seed, the names and the time are arguments, so the same fleet falls ill in the same way each time.
//
//	Plan     what a file says (Parse), or nothing
//	Patient  one node: which faults concern it, since when; Look says how the node is now
//	Patient.Container   what ails one container of a pod on it
//
// A fault comes from the plan, or from the annotation simulated.everynode.io/fault of a node or of a pod, whose value
// is one fault in the same words, such as "powerLoss" or "{crash: {after: 5s, exitCode: 3}}". On a pod it usually comes
// from a DaemonSet's template, which makes a revision that is bad wherever it comes to. The value "none" on a node
// spares it from all faults.
package illness
