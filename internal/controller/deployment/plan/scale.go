package plan

import (
	"cmp"
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
)

// scaled reports whether the number of replicas has changed since the sets got
// their sizes.
func (r *rollout) scaled() bool {
	return slices.ContainsFunc(activeOf(r.sets), func(s *set) bool {
		desired, ok := s.number(DesiredReplicasAnnotation)
		return ok && desired != r.limits.replicas
	})
}

// scale brings the sets to the wanted number of pods without going on with a
// rollout.
func (r *rollout) scale() {
	active := activeOf(r.sets)
	if only := r.only(active); only != nil {
		r.resize(only, r.limits.replicas, "is scaled to %d", r.limits.replicas)
		return
	}
	switch {
	case r.saturated():
		for _, s := range activeOf(r.old()) {
			r.resize(s, 0, "is not needed: the new set has all %d pods", r.limits.replicas)
		}
	case r.d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType:
		r.spread(active)
	default:
		for _, s := range active {
			r.resize(s, s.replicas, "") // noted, so that the rollout goes on
		}
	}
}

// only returns the set to scale if there is no doubt: the one with pods, or
// without any, the new one or the latest. It is nil with several active sets.
func (r *rollout) only(active []*set) *set {
	switch {
	case len(active) == 1:
		return active[0]
	case len(active) > 1 || len(r.sets) == 0:
		return nil
	case r.fresh != nil:
		return r.fresh
	}
	return r.sets[len(r.sets)-1]
}

// saturated reports whether the new set alone is all that is wanted.
func (r *rollout) saturated() bool {
	if r.fresh == nil {
		return false
	}
	desired, ok := r.fresh.number(DesiredReplicasAnnotation)
	return ok && desired == r.limits.replicas && r.fresh.replicas == desired &&
		r.fresh.before.Status.AvailableReplicas == desired
}

// spread gives each set a part of the change that is in proportion to its size;
// what is left over goes to the largest. So a scaling in the middle of a rollout
// does not bet on the new template.
func (r *rollout) spread(active []*set) {
	allowed := int32(0)
	if r.limits.replicas > 0 {
		allowed = r.limits.most()
	}
	change := allowed - total(active)
	// The largest first; of equals, the newer one grows and the older one shrinks.
	if change > 0 {
		slices.Reverse(active)
	}
	slices.SortStableFunc(active, func(a, b *set) int { return cmp.Compare(b.replicas, a.replicas) })
	sizes, left := make([]int32, len(active)), change
	for i, s := range active {
		part := min(max(r.part(s), min(0, left)), max(0, left))
		sizes[i] = s.replicas + part
		left -= part
	}
	if len(sizes) > 0 {
		sizes[0] = max(0, sizes[0]+left)
	}
	for i, s := range active {
		r.resize(s, sizes[i], "gets its part of %d pods in all", allowed)
	}
}

// part is by how much a set grows or shrinks if its share of all pods stays.
func (r *rollout) part(s *set) int32 {
	if r.limits.replicas == 0 {
		return -s.replicas
	}
	before, ok := s.number(MaxReplicasAnnotation)
	if !ok || before == 0 {
		before = r.d.Status.Replicas
	}
	if before == 0 {
		return 0
	}
	return int32(math.Round(float64(s.replicas)*float64(r.limits.most())/float64(before))) - s.replicas
}
