// Package rollout is what people do with the rollouts of DaemonSets, from outside:
// they look where one is, pause it, approve its steps, try again, abort it. It is a
// client: it writes the spec of DaemonSetRollouts, and nothing else.
package rollout
