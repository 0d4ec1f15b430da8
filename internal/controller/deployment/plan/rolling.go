package plan

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/pod"
)

// roll takes the next step of a rolling update.
func (r *rollout) roll() {
	if r.fresh == nil {
		r.create()
	}
	if r.grow() {
		return
	}
	if r.shrink() {
		return
	}
	if r.complete(r.observe()) {
		r.cleanUp()
	} else {
		r.explainWait()
	}
}

func (r *rollout) explainWait() {
	r.explain("waits for pods of %s: %d of %d are available", r.fresh.before.Name, r.fresh.available(), r.fresh.replicas)
}

// grow brings the new set to its size, as far as there is room. It reports whether
// that changed anything.
func (r *rollout) grow() bool {
	before := r.fresh.replicas
	switch want := r.limits.replicas; {
	case before == want:
		return false
	case before > want:
		r.resize(r.fresh, want, "has more pods than the %d wanted", want)
	default:
		r.resize(r.fresh, r.room(r.fresh), "may grow towards %d pods within %d in all", want, r.limits.most())
	}
	return r.fresh.replicas != before
}

// room is the size that the new set may have beside the others.
func (r *rollout) room(fresh *set) int32 {
	if r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return r.limits.replicas
	}
	free := r.limits.most() - total(r.sets)
	if free <= 0 {
		return fresh.replicas
	}
	return fresh.replicas + min(free, r.limits.replicas-fresh.replicas)
}

// shrink takes pods from the old sets: first those that do not serve, then as
// many as can be missed. It reports whether there were any.
func (r *rollout) shrink() bool {
	old := activeOf(r.old())
	if len(old) == 0 {
		return false
	}
	for _, s := range activeOf(r.sets) {
		// Of a set that was scaled since its last report it is not known how many pods
		// are left: it may have been down and up again.
		if !s.seen() {
			r.explain("waits until the size of %s has been seen", s.before.Name)
			return false
		}
	}
	missing := r.fresh.replicas - r.fresh.available()
	spare := total(r.sets) - r.limits.least() - missing
	if spare <= 0 {
		r.explainWait()
		return false
	}
	before := total(old)
	r.dropUnhealthy(old, spare)
	r.dropSpare(old)
	if total(old) == before {
		r.explain("waits for available pods: there must be %d", r.limits.least())
	}
	return total(old) != before
}

// dropUnhealthy takes away up to spare pods that are not available.
func (r *rollout) dropUnhealthy(old []*set, spare int32) {
	for _, s := range old {
		if n := min(spare, s.replicas-s.available()); n > 0 {
			r.resize(s, s.replicas-n, "loses %d pods that are not available", n)
			spare -= n
		}
	}
}

// dropSpare takes away pods as long as enough remain available.
func (r *rollout) dropSpare(old []*set) {
	spare := -r.limits.least()
	for _, s := range r.sets {
		spare += s.available()
	}
	for _, s := range old {
		if n := min(spare, s.replicas); n > 0 {
			r.resize(s, s.replicas-n, "loses %d pods: %d must stay available", n, r.limits.least())
			spare -= n
		}
	}
}

// recreate takes the next step of an update that stops everything old first.
func (r *rollout) recreate() {
	if old := activeOf(r.old()); len(old) > 0 {
		for _, s := range old {
			r.resize(s, 0, "must be gone before the new pods start")
		}
		return
	}
	if r.oldPodsRemain() {
		r.explain("waits until the old pods are gone")
		return
	}
	if r.fresh == nil {
		r.create()
	}
	r.resize(r.fresh, r.limits.replicas, "starts, the old pods are gone")
	if r.complete(r.observe()) {
		r.cleanUp()
	} else {
		r.explainWait()
	}
}

// oldPodsRemain reports whether anything of an old set may still be running.
func (r *rollout) oldPodsRemain() bool {
	for _, s := range r.old() {
		if s.before.Status.Replicas > 0 {
			return true
		}
		for _, p := range r.in.Pods {
			if metav1.IsControlledBy(p, s.before) && !pod.IsTerminal(p) {
				return true
			}
		}
	}
	return false
}
