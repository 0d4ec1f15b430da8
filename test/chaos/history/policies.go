package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/daemon"
	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/history/told"
	"github.com/everynode/everynode/test/chaos/history/waves"
)

// The rules for DaemonSets whose changes follow a policy.
const (
	Assigned = "a revision that was not the node's"
	Failed   = "a failed revision was tried again"
	Still    = "changed while nothing may"
	Limits   = "more taken down than the policy allows"
	Early    = "a step began too early"
)

// nodeOf are the versions of the decision's node that can have been known.
func (j *judge) nodeOf(d decision, low int64) (out []*corev1.Node) {
	all := j.nodes[d.at.node]
	for i, t := range all {
		if t.Gone != 0 && t.Gone <= low && i+1 < len(all) && all[i+1].Versions[0].From <= d.event {
			continue // one of the name has joined again, and may be elsewhere
		}
		for _, o := range t.Between(low, d.event) {
			out = append(out, o.(*corev1.Node))
		}
	}
	return out
}

// mayHave reports whether the template, of the revision if one is named, can have been what the node was to have.
func (j *judge) mayHave(d decision, g *guidance, mark, is string) bool {
	if (g.free || g.absent) && slices.Contains(g.marks, mark) {
		return true
	}
	for _, r := range slices.Concat(g.rollouts, g.written) {
		s := &r.Status
		target := slices.Contains(g.marks, mark) || j.whole(s.TargetRevision) == mark
		switch {
		case s.TargetRevision == "", s.StableRevision != "" && j.whole(s.StableRevision) == mark:
			return true
		case !target && (s.StableRevision != "" || told.WithoutSteps(s) || j.failedAs(s, mark, is)):
		case s.StableRevision == "": // where steps are asked for, what works on most nodes stands in for it
			return true
		case j.opened(d, g, s) || j.earned(d, g, mark):
			return true
		}
	}
	return j.overtaken(d, mark, is)
}

// overtaken reports whether the template can have been what the node was to have when its last daemon was taken: where
// another change begins before the next one is made, and nothing of the stable revision can be, it gets that.
func (j *judge) overtaken(d decision, mark, is string) bool {
	for _, t := range slices.Backward(j.pods[d.at]) {
		i := slices.IndexFunc(t.Versions, func(v lives.Version) bool { return v.Object.GetDeletionTimestamp() != nil })
		end := &Event{Revision: t.Gone, Deleted: true, Object: t.Last()}
		if i >= 0 {
			end.Revision, end.Object = t.Versions[i].From, t.Versions[i].Object
		}
		if end.Revision == 0 || end.Revision >= d.event {
			continue
		}
		then, ours := j.decide(end, end.Object.(*corev1.Pod))
		return ours && !j.deleted[t.First().GetUID()] && j.mayHave(then, j.guide(then), mark, is)
	}
	return false
}

// failedAs reports whether the revision, which other variants make another, or any of the template has failed.
func (j *judge) failedAs(s *v1alpha1.DaemonSetRolloutStatus, mark, is string) bool {
	return slices.ContainsFunc(s.FailedRevisions, func(f v1alpha1.FailedRevision) bool {
		return f.Revision == is || is == "" && j.whole(f.Revision) == mark
	})
}

// earned reports whether the steps before one of the node's can be over: the template was available on each of their
// nodes that is well, and who has to approve did. Several steps may begin between two writes of the status.
func (j *judge) earned(d decision, g *guidance, mark string) bool {
	for _, p := range g.policies {
		for _, n := range j.nodeOf(d, g.low) {
			if slices.ContainsFunc(waves.Of(p, n), func(at waves.Stage) bool { return j.allBefore(d, p, at, mark) }) {
				return true
			}
		}
	}
	return false
}

func (j *judge) allBefore(d decision, p *v1alpha1.RolloutPolicy, at waves.Stage, mark string) bool {
	before := map[string]bool{}
	for name := range j.nodes {
		n, left := j.steady(name, d), false
		if n == nil {
			if n, left = j.departs(name, d, mark); n == nil {
				continue
			}
		}
		stages := waves.Of(p, n)
		if len(stages) != 1 || !stages[0].Before(at) {
			continue
		}
		before[stages[0].Name(p)] = true
		if !left && !j.hadAvailable(place{d.at.set, name}, mark, d.event) && !j.faulty(name, d.early-lag, d.event) {
			return false
		}
	}
	for step := range before {
		if waves.Asks(p, step) && !j.everApproved(d, mark) {
			return false
		}
	}
	return true
}

func (j *judge) hadAvailable(at place, mark string, revision int64) bool {
	for _, t := range j.pods[at] {
		for _, p := range pods(t.Between(0, revision)) {
			if _, ready := daemon.ReadySince(p); ready && has(p, mark) {
				return true
			}
		}
	}
	return false
}

// everApproved reports whether somebody approved a step of the template, in no change before those that were known.
func (j *judge) everApproved(d decision, mark string) bool {
	for _, t := range j.rollouts[j.tracks[d.at.set].First().GetName()] {
		for _, o := range t.Between(0, d.event) {
			a := o.(*v1alpha1.DaemonSetRollout).Spec.Approved
			if a != nil && j.whole(a.Revision) == mark && a.Change >= told.Change(t.Between(d.early, d.event)) {
				return true
			}
		}
	}
	return false
}

// opened reports whether a step of the node can have begun.
func (j *judge) opened(d decision, g *guidance, s *v1alpha1.DaemonSetRolloutStatus) bool {
	for _, p := range g.policies {
		for _, n := range j.nodeOf(d, g.low) {
			if slices.ContainsFunc(waves.Of(p, n), func(at waves.Stage) bool { return j.began(s, p, at, d) }) {
				return true
			}
		}
	}
	return false
}

// givenOne judges a pod that was made for a DaemonSet with a policy.
func (j *judge) givenOne(d decision, p *corev1.Pod) {
	g := j.guide(d)
	if !g.ruled && g.absent {
		return
	}
	mark := wholeOf(p)
	if !j.mayHave(d, g, mark, revision.Of(p)) {
		j.report(Assigned, d.event, g.concerned(d, p.UID), "pod %s on node %s was made of template %q, which was not the node's: %s", p.Name, d.at.node, mark, j.tell(g))
		return
	}
	if g.free || g.absent || len(g.rollouts) == 0 {
		return
	}
	for _, r := range g.rollouts {
		if !told.HasFailed(r, revision.Of(p)) || j.retried(r, revision.Of(p), d) {
			return
		}
	}
	j.report(Failed, d.event, g.concerned(d, p.UID), "pod %s on node %s was made of template %q, which had failed: %s", p.Name, d.at.node, mark, j.tell(g))
}

// retried reports whether somebody had asked for another try by the time of the decision.
func (j *judge) retried(r *v1alpha1.DaemonSetRollout, hash string, d decision) bool {
	for _, f := range r.Status.FailedRevisions {
		if f.Revision != hash {
			continue
		}
		for _, t := range j.rollouts[r.Name] {
			for _, o := range t.Between(0, d.event) {
				if try := o.(*v1alpha1.DaemonSetRollout).Spec.Retry; try != nil && try.Revision == hash && try.Count > f.Retries {
					return true
				}
			}
		}
	}
	return false
}

// tell says what the guidance was, for people.
func (j *judge) tell(g *guidance) string {
	var out []string
	for _, r := range slices.Concat(g.rollouts, g.written) {
		s := &r.Status
		text := fmt.Sprintf("%s, stable %q, target %q, step %q", s.Phase, j.whole(s.StableRevision), j.whole(s.TargetRevision), s.Step)
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return fmt.Sprintf("the newest is one of %q, the rollout was %s", g.marks, strings.Join(out, "; "))
}

// takenUnderPolicy judges the end of a pod, or the beginning of a second one, on a node that was well until then.
func (j *judge) takenUnderPolicy(d decision, g *guidance, p *corev1.Pod, surge bool, now time.Time) {
	if g.free || g.absent {
		return
	}
	if why := j.standsStill(g); why != "" {
		j.report(Still, d.event, g.concerned(d, p.UID), "node %s was changed though %s: pod %s", d.at.node, why, p.Name)
	}
	if len(g.policies) == 0 {
		return
	}
	if j.forward(g, p) && !slices.ContainsFunc(slices.Concat(g.rollouts, g.written), func(r *v1alpha1.DaemonSetRollout) bool { return j.opened(d, g, &r.Status) }) &&
		!slices.ContainsFunc(g.marks, func(mark string) bool { return j.earned(d, g, mark) }) {
		j.report(Assigned, d.event, g.concerned(d, p.UID), "node %s lost pod %s of the stable template before its step began: %s", d.at.node, p.Name, j.tell(g))
	}
	if j.forward(g, p) {
		j.fetchedFirst(d, g, p, now)
	}
	j.countTaken(d, g, p, surge, now)
}

// forward reports whether a pod's end surely was a change to the target.
func (j *judge) forward(g *guidance, p *corev1.Pod) bool {
	return !slices.ContainsFunc(slices.Concat(g.rollouts, g.written), func(r *v1alpha1.DaemonSetRollout) bool {
		s := &r.Status
		return s.StableRevision == "" || s.StableRevision == s.TargetRevision || !has(p, j.whole(s.StableRevision)) ||
			told.HasFailed(r, s.TargetRevision)
	})
}

// countTaken judges how many nodes are changed at a time, and how fast.
func (j *judge) countTaken(d decision, g *guidance, p *corev1.Pod, surge bool, now time.Time) {
	forward := j.forward(g, p)
	j.count(d, g, p, forward, surge, now)
	if forward {
		j.paced(d, g, p, now)
	}
}

// standsStill says why nothing may begin, whatever of its guidance the controller went by.
func (j *judge) standsStill(g *guidance) string {
	every := func(why string, is func(*v1alpha1.DaemonSetRollout) bool) string {
		if len(g.rollouts) == 0 || slices.ContainsFunc(g.rollouts, func(r *v1alpha1.DaemonSetRollout) bool { return !is(r) }) {
			return ""
		}
		return why
	}
	lost := ""
	switch {
	case !g.ruled:
		lost = "the policy was gone in the middle"
	case !slices.ContainsFunc(g.policies, waves.CanBeFollowed):
		lost = "the policy cannot be followed"
	}
	return cmp.Or(lost,
		every("the rollout is paused", func(r *v1alpha1.DaemonSetRollout) bool { return r.Spec.Paused }),
		every("the rollout is halted", func(r *v1alpha1.DaemonSetRollout) bool {
			// Another template ends that, before a status says so.
			other := slices.ContainsFunc(g.marks, func(mark string) bool { return mark != j.whole(r.Status.TargetRevision) }) ||
				j.molds.Edited(g.low, g.high)
			return r.Status.Phase == v1alpha1.PhaseHalted && !told.Retried(r) && !other
		}),
	)
}
