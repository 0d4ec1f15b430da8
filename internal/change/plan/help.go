package plan

import (
	"cmp"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// help gives what people are asked for; false if that is nothing. A failed revision is not tried again: that is more
// than a word.
func (p *play) help() bool {
	if p.set.DaemonSet.Spec.UpdateStrategy.Type == "OnDelete" {
		return p.deleteOld()
	}
	r, st := p.rollout, &p.status
	if r == nil || p.core.Follows == nil || r.Status.TargetRevision != st.TargetRevision || r.Status.TargetDigest == "" {
		return false
	}
	next := r.DeepCopy()
	if !p.answer(&next.Spec, st) || apiequality.Semantic.DeepEqual(next.Spec, r.Spec) {
		return false // nobody is asked, or it was given and does not help
	}
	next.Generation++
	p.rollout = next
	p.core.Book.Step(rollouts.Rollout{Object: next})
	return true
}

// answer writes what people are asked for into a rollout's spec; false if that is nothing.
func (p *play) answer(spec *v1alpha1.DaemonSetRolloutSpec, st *v1alpha1.DaemonSetRolloutStatus) bool {
	approve := func(step string) {
		spec.Approved = &v1alpha1.StepApproval{Revision: st.TargetRevision, Digest: p.rollout.Status.TargetDigest, Step: step,
			Change: st.Change}
	}
	switch held := st.Phase == v1alpha1.PhasePaused && st.TargetRevision != st.StableRevision; {
	case st.Phase == v1alpha1.PhaseWaitingForApproval:
		approve(st.Step)
		p.approved(st)
	case held && p.core.Follows.Following == course.Followed && spec.Paused:
		spec.Paused = false
		const paused = "the rollout is paused; nothing begins before \"everynode rollout resume\""
		p.helped("resume", cmp.Or(p.core.Follows.PausedWhy, paused))
	case held && p.core.Follows.Following == course.Gone && !rollouts.TargetFailed(st):
		approve(v1alpha1.WithoutPolicy)
		p.helped("approval of step "+v1alpha1.WithoutPolicy, st.Message)
	default:
		return false
	}
	return true
}

// deleteOld deletes the pods that only somebody's deletion replaces.
func (p *play) deleteOld() bool {
	var old []action.Action
	for uid, o := range p.pods {
		outdated := p.revision(uid) != p.set.Revision && o.Phase == fact.PodActive && !o.Terminating
		if outdated && p.core.Selects(o.Owner, p.set.Revision, o.Node) {
			old = append(old, &action.DeletePod{Node: o.Node, PodUID: uid, Reason: action.ReasonOutdated})
		}
	}
	if len(old) == 0 {
		return false
	}
	p.helped(byHand, "")
	p.note(old)
	for _, a := range old {
		p.end(a.(*action.DeletePod).PodUID)
	}
	return true
}
