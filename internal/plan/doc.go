// Package plan foretells what applying a DaemonSet would do: which fields change, which nodes get, lose or change their
// pod, what would not fit, in which steps and how fast. It is pure: a survey and the DaemonSet as it would be stored go
// in, a forecast comes out, as text or as JSON. Nothing is begun by it.
package plan
