// Package rollouts decides which RolloutPolicy the changes of which DaemonSet follow,
// and how long a DaemonSetRollout is kept.
//
// A Book is told of DaemonSets, policies and rollouts. It tells the matrix what each
// row is to follow, and returns jobs: the status of a policy, a rollout whose
// DaemonSet is gone. It is pure: no clock, no lock, no goroutine, no log, no client.
//
// # Which policy
//
// Of the policies of the namespace that choose the DaemonSet by its labels the oldest
// counts; the others say so in a condition. A policy that counts and cannot be
// followed, say because nobody knows its time zone, stops what is new: no younger one
// and no plain update takes its place. OnDelete is not changed by a policy.
//
// # Without a policy
//
// When the policy goes in the middle of a change, the change stands still until
// another policy takes it over, or somebody approves "WithoutPolicy". An approval of
// steps is no such consent, and a revision that has failed gets none. After that, and
// when nothing was under way, the DaemonSet changes as in Kubernetes. A rollout that is
// paused, or that knows of failures, is kept for a day more, so that both count again
// when a policy comes back.
//
// # When nothing can be read
//
// What follows a policy, has a rollout, or says in its own condition that it follows one
// stands still. Of all others nothing speaks for a policy.
//
// # After the DaemonSet
//
// A rollout is kept for a day after its DaemonSet, so that a DaemonSet that is deleted
// and made again under the same name does not try again what has failed. It therefore
// has no owner reference: a label says whose it is.
package rollouts
