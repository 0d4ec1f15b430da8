package history

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/wants"
)

func pods(objects []metav1.Object) (out []*corev1.Pod) {
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			out = append(out, p)
		}
	}
	return out
}

func uids(d decision, list ...*corev1.Pod) []types.UID {
	out := []types.UID{d.at.set}
	for _, p := range list {
		out = append(out, p.UID)
	}
	return out
}

// created judges a daemon pod that the controller made.
func (j *judge) created(e *Event, p *corev1.Pod) {
	d, ok := j.decide(e, p)
	if !ok || d.at.node == "" {
		return
	}
	if len(j.policies) > 0 {
		j.givenOne(d, p)
		j.placed(d, p)
	}
	others := slices.DeleteFunc(j.others(d.at, p.UID, e.Revision), func(o *corev1.Pod) bool { return j.notOurs(d, o) })
	if !d.any(wants.Surges) {
		others = slices.DeleteFunc(others, func(o *corev1.Pod) bool { return !daemon.Occupies(o) })
		if len(others) > 0 {
			j.report(Singles, e.Revision, uids(d, append(others, p)...), "pod %s was created on node %s, where %s still is", p.Name, d.at.node, describe(others))
		}
		return
	}
	others = slices.DeleteFunc(others, func(o *corev1.Pod) bool { return o.DeletionTimestamp != nil || daemon.Ended(o) })
	if len(others) > 1 {
		j.report(Singles, e.Revision, uids(d, append(others, p)...), "pod %s was created on node %s with surge, where %s are", p.Name, d.at.node, describe(others))
	}
	if len(others) == 1 && sameAs(others[0], p) {
		j.report(Singles, e.Revision, uids(d, append(others, p)...), "pod %s was created on node %s, where %s of the same template is", p.Name, d.at.node, describe(others))
	}
	j.surged(d, p, others)
}

// notOurs reports whether the controller need not have known the pod: users made
// it or moved it, and it was not the DaemonSet's yet when it decided, or no longer.
func (j *judge) notOurs(d decision, o *corev1.Pod) bool {
	then, _ := j.tracks[o.UID].At(d.since).(*corev1.Pod)
	if ownerOf(j.tracks[o.UID].First()) != d.at.set && (then == nil || ownerOf(then) != d.at.set) {
		return true // adopted meanwhile
	}
	if !j.touched[o.UID] {
		return false
	}
	for _, v := range pods(j.tracks[o.UID].Between(0, d.event)) {
		if !selects(d.specs[0], v) {
			return true
		}
	}
	return false
}

// deletesNothing reports whether old pods stay until somebody deletes them. Such a DaemonSet follows no policy.
func deletesNothing(d *appsv1.DaemonSet) bool {
	return d.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}

func selects(d *appsv1.DaemonSet, o metav1.Object) bool {
	s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	return err == nil && s.Matches(labels.Set(o.GetLabels()))
}

// surged counts a second pod beside an available one.
func (j *judge) surged(d decision, p *corev1.Pod, others []*corev1.Pod) {
	if len(others) != 1 || d.any(func(s *appsv1.DaemonSet) bool { return !wants.Surges(s) }) {
		return
	}
	g := j.guidanceOf(d)
	from, outdated := j.outdatedFrom(d, others[0])
	if g != nil || j.varies(d, g, others[0]) {
		from, outdated = min(from, d.early), true
	}
	if !outdated || !j.surelyAvailable(d, others[0], from) {
		return
	}
	j.doubled[d.at] = pair{others[0].UID, p.UID}
	count := j.countDoubled(d, p.CreationTimestamp.Time)
	if g != nil {
		j.takenUnderPolicy(d, g, others[0], true, p.CreationTimestamp.Time)
		return
	}
	if b := j.budget(d); count > b.Surge {
		j.report(Budget, d.event, uids(d, p), "pod %s is the second on node %s; that makes %d nodes, and maxSurge allows %d", p.Name, d.at.node, count, b.Surge)
	}
}

// countDoubled counts the nodes that have two pods of a DaemonSet, and forgets the others.
func (j *judge) countDoubled(d decision, now time.Time) (count int) {
	for at, both := range j.doubled {
		first, second := j.live(both.first, d.event), j.live(both.second, d.event)
		switch {
		case at.set != d.at.set:
			continue
		case first == nil || second == nil || !selects(d.specs[0], first) || !selects(d.specs[0], second) || j.wasAvailable(d, second, d.event, now), j.unwanted(d, at, d.since):
			delete(j.doubled, at)
		default:
			count++
		}
	}
	return count
}

// live is the pod at a revision, or nil if it has ended or is on its way out.
func (j *judge) live(pod types.UID, revision int64) *corev1.Pod {
	p, _ := j.tracks[pod].At(revision).(*corev1.Pod)
	if p == nil || p.DeletionTimestamp != nil || daemon.Ended(p) {
		return nil
	}
	return p
}

// removed judges the deletion of a daemon pod, if it was the controller's.
func (j *judge) removed(e *Event, p *corev1.Pod) {
	if j.deleted[p.UID] || daemon.Disrupted(p) {
		return
	}
	d, ok := j.decide(e, p)
	if !ok || d.at.node == "" {
		return
	}
	life := j.tracks[p.UID].Versions[0].From
	worst, best := j.fits(d, life-lag)
	if worst == wants.Unfit || best != wants.ShouldRun {
		j.leaves(d, p, life)
		return // wants.Unfit at some time, or only allowed to stay
	}
	if slices.ContainsFunc(j.seen(p.UID, life, e.Revision), daemon.Ended) || j.crowded(d, p, life) {
		return
	}
	g := j.guidanceOf(d)
	from, outdated := j.outdated(d, g, p)
	switch {
	case !outdated:
		j.report(Reason, e.Revision, uids(d, p), "pod %s on node %s was deleted, though its template was the newest, its node fit and it had not ended", p.Name, d.at.node)
	case !d.any(func(s *appsv1.DaemonSet) bool { return !deletesNothing(s) }):
		j.report(Reason, e.Revision, uids(d, p), "pod %s on node %s was deleted, though the strategy is OnDelete", p.Name, d.at.node)
	case j.surelyAvailable(d, p, from):
		j.takenDown(d, g, p, worst == wants.MayStay)
	}
}

// crowded reports whether another pod was beside it that could be a reason for the
// deletion: one that users made or moved, or any without surge.
func (j *judge) crowded(d decision, p *corev1.Pod, life int64) bool {
	surge := !d.any(func(s *appsv1.DaemonSet) bool { return !wants.Surges(s) })
	for _, t := range j.pods[d.at] {
		if t.First().GetUID() == p.UID {
			continue
		}
		for _, o := range pods(t.Between(life, d.event)) {
			theirs := j.touched[o.UID] || ownerOf(t.First()) != d.at.set
			if o.DeletionTimestamp == nil && (theirs || !surge || alike(o, p)) {
				return true
			}
		}
	}
	return false
}

// takenDown judges the end of an available pod of an old template. With surge one that only may stay needs none.
func (j *judge) takenDown(d decision, g *guidance, p *corev1.Pod, mayOnlyStay bool) {
	now := daemon.DeletedAt(p)
	switch {
	case mayOnlyStay && d.any(wants.Surges):
		return
	case !d.any(func(s *appsv1.DaemonSet) bool { return !wants.Surges(s) }):
		if !j.hadSuccessor(d, p, now) {
			j.report(Surge, d.event, uids(d, p), "pod %s on node %s was available and was deleted before a new one had been", p.Name, d.at.node)
		}
		return
	case d.any(wants.Surges):
		return // the strategy was just changing
	}
	if g != nil {
		if stays, _ := j.wants(d, p, j.knownSince(d.early-lag, j.nodes[d.at.node])); stays { // by its own template
			j.takenUnderPolicy(d, g, p, false, now)
		}
		return
	}
	count := 1
	for at, revision := range j.taken {
		if at.set != d.at.set || at == d.at {
			continue
		}
		if j.recovered(d, at, revision, now) {
			delete(j.taken, at)
			continue
		}
		count++
	}
	j.taken[d.at] = d.event
	count += len(j.nodesGiven(d, 0))
	if b := j.budget(d); count > b.Unavailable {
		j.report(Budget, d.event, uids(d, p), "pod %s on node %s was available and was deleted; that makes %d nodes without one by our own doing, and maxUnavailable allows %d",
			p.Name, d.at.node, count, b.Unavailable)
	}
}

// hadSuccessor reports whether a pod of another template had been available beside it.
func (j *judge) hadSuccessor(d decision, p *corev1.Pod, now time.Time) bool {
	return slices.ContainsFunc(j.pods[d.at], func(t *track) bool {
		o, _ := t.At(d.event).(*corev1.Pod)
		if o == nil {
			o, _ = t.Last().(*corev1.Pod)
		}
		return o.UID != p.UID && !sameAs(o, p) && t.Versions[0].From < d.event && j.wasAvailable(d, o, d.event, now)
	})
}

// recovered reports whether a place that lost its pod counts no more: something
// available has been there since, or the node is none for the DaemonSet.
func (j *judge) recovered(d decision, at place, revision int64, now time.Time) bool {
	for _, t := range j.pods[at] {
		for _, p := range pods(t.Between(revision+1, d.event)) {
			if p.DeletionTimestamp == nil && j.wasAvailable(d, p, d.event, now) {
				return true
			}
		}
	}
	return j.unwanted(d, at, revision)
}

// unwanted reports whether the controller can have found since a revision that the
// node is none for the DaemonSet: what is there goes whatever the budget says.
func (j *judge) unwanted(d decision, at place, since int64) bool {
	d.at = at
	worst, _ := j.fits(d, since)
	return worst != wants.ShouldRun
}
