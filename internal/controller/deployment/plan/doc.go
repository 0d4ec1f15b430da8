// Package plan decides what a Deployment needs: which ReplicaSets to create,
// scale and delete, and what its status says. It reads nothing but its arguments.
//
// Each template that a Deployment ever had is a ReplicaSet, kept at zero pods for
// going back to it. The set with the present template is the new one, the others
// are old. A decision takes one of these ways:
//
//	being deleted   the status only
//	paused          scale what there is, as a whole; make no new set
//	scaled          spread the change over the sets in proportion to their sizes
//	Recreate        old sets to zero; when their pods are gone, the new one up
//	RollingUpdate   the new set up as far as maxSurge allows, old sets down as far
//	                as maxUnavailable allows, unhealthy pods first
//
// Invariants of a plan for a rolling update:
//
//   - It never raises the number of pods beyond replicas and maxSurge.
//   - It takes no available pod if fewer than replicas less maxUnavailable would
//     remain.
//   - Doing it twice is doing it once: a set is only ever set to a size, in the
//     version that the decision was made on.
package plan
