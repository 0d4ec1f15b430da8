// Package plan foretells what applying a DaemonSet would do: which fields change, which nodes get, lose or change their
// pod, what would not fit, in which steps and how fast. It is pure: a survey and the DaemonSet as it would be stored go
// in, a forecast comes out, as text or as JSON. Nothing is begun by it.
//
// It has no rules of its own. A play is the controller's own core (its row, its course, its book of policies) with the
// DaemonSet as it would be stored, on nodes that behave well, and with a clock that jumps to when something happens
// next. What the core does there is the forecast.
package plan
