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
