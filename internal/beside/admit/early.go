package admit

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/change/variant"
)

// newFor is how long the pods of a new DaemonSet wait until its content is known. A daemon is worth more than what it
// reads: after that they are made as they are, and replaced in their turn.
const newFor = 10 * time.Second

// WaitsForRollout is how long pods wait for a rollout that is to be made: longer than it takes another one to lead. A
// daemon is worth more than its revision.
const WaitsForRollout = time.Minute

// HasRun reports of a DaemonSet without a rollout that it may have pods of several revisions: somebody has deleted its
// rollout, or has changed it before there was one. Its conditions tell of the rollout that was there, and stay as they
// are until there is another one. selected tells that a policy selects it; without one nobody makes a rollout, but for
// a change that was under way.
func HasRun(ds *appsv1.DaemonSet, selected bool) bool {
	told := slices.ContainsFunc(ds.Status.Conditions, func(c appsv1.DaemonSetCondition) bool {
		return c.Type == v1alpha1.RolloutReconciling && c.Reason != NotSeen &&
			(selected || c.Reason != string(v1alpha1.PhaseComplete))
	})
	return told || selected && ds.Generation > 1
}

// Unwritten decides about a pod of such a DaemonSet. Which revision its node is to have nobody can tell before whoever
// leads has made the next rollout: until then the pod waits. lacking is for how long there has been none.
func Unwritten(selected bool, lacking time.Duration) Answer {
	switch {
	case lacking < WaitsForRollout:
		return Answer{Later, "the DaemonSetRollout that says which revision its node is to have is not there: somebody has " +
			"deleted it, or it is still to be made; the pod is made when the controller has made the next one", nil}
	case selected:
		return Answer{Unknown, "its DaemonSet has had no DaemonSetRollout for " + WaitsForRollout.String() +
			", and nobody makes one: does a controller lead?", nil}
	}
	return Answer{AsMade, "its DaemonSet follows no policy", nil}
}

// IsNew reports whether a DaemonSet is new, so that what its pods need may still be on its way.
func IsNew(ds *appsv1.DaemonSet, now time.Time) bool {
	age := now.Sub(ds.CreationTimestamp.Time)
	return age > -newFor && age < newFor
}

// Early decides about a pod of a DaemonSet whose rollout has not begun: there is no revision that it could be given.
// Where the policy has content be a part of revisions, the copies of a new DaemonSet's are about to be made; where
// variants choose it, they are about to be stored. Of one that is not new the variants need not be known.
func Early(
	ds *appsv1.DaemonSet, policy *rolloutpolicy.Policy, variants []v1alpha1.DaemonSetVariant, now time.Time,
) Answer {
	asMade := Answer{AsMade, "no revision is known for its node", nil}
	if !IsNew(ds, now) {
		return asMade
	}
	chooses := func(v v1alpha1.DaemonSetVariant) bool { return variant.Selects(&v, ds) }
	if slices.ContainsFunc(variants, chooses) {
		return Answer{Later, "the DaemonSet is new, and how its pods differ is still being written down; they are made " +
			"when that is done, or some seconds later without", nil}
	}
	reads := content.Refs(&ds.Spec.Template.Spec)
	if policy.Content != nil && slices.ContainsFunc(reads, policy.Content.Takes) {
		return Answer{Later, "the DaemonSet is new, and what it reads is still being copied for its rollout; " +
			"its pods are made when that is done, or some seconds later without", nil}
	}
	return asMade
}
