// Package history judges what a control plane has done, from nothing but the
// full history of its objects and the journal of what was asked of it.
//
// It knows none of the product's code. What it demands:
//
//   - Singles: without surge, a daemon pod is created only when no other pod of
//     its DaemonSet occupies the node; one that is on its way out occupies it
//     until it is gone or has ended. With surge there may be one other live pod,
//     of another template, and the old one goes when the new one has been
//     available, or when it was not ready itself.
//   - Budget: the available pods that the controller itself took down for an
//     update, and that nothing available has replaced yet, are never on more
//     nodes than maxUnavailable allows; likewise second pods and maxSurge.
//   - Reason: no pod is deleted that nothing was wrong with.
//   - Policies (policies.go, stages.go, limits.go): where changes follow a
//     RolloutPolicy, a pod has the stable template unless its node's step has begun;
//     a failed template is not made again unless somebody wants that; nothing is taken
//     down while the rollout is paused or halted, or its policy is gone or cannot be
//     followed; no step and no domain has more nodes down by the rollout's doing than
//     it allows; no step begins that somebody has to approve first and did not, nor
//     before those before it have soaked (watched.go); changes begin no faster than the
//     pace; where a template takes a daemon away it goes in its node's turn, and no pod
//     is made where its template wants none.
//     No available daemon is taken away from a step whose nodes fetch images before, until they have these, cannot
//     have them, or were waited for (package fetches).
//     On the way back only what was taken since the turn counts: what the target has broken keeps no others.
//   - Content (content.go): where ConfigMaps and Secrets are a part of revisions, all this holds of them, also of
//     content that a running pod is given; test/chaos/copies has more.
//   - Stranded (stranded.go): while nodes are dead, all others get what they are to have, but those that
//     share a domain with a dead one.
//   - Writes: what was acknowledged to a user is in the history as answered, and nobody else changes what users write.
//   - Settled (settled.go): in the end the fleet, the statuses and the rollouts are as
//     the DaemonSets say.
//
// A controller works on what it has been told so far. So a rule holds where it holds for any state that the controller
// can have known when it decided: from the specification it had last reported as observed, and from the versions of the
// objects that were delivered to it, to the moment of its request. What it did itself it must know, however late its
// watches are.
package history
