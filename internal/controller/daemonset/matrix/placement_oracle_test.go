package matrix

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// wants is the oracle of which revision's placement rules count on a node, from what the
// rollout's status says, the nodes and the pods. It shares no code with the course.
func (w *world) wants(uid types.UID, node string) (revision string, guided bool) {
	newest := w.sets[uid].Revision
	st, known := w.m.Rollout(uid)
	if _, follows := w.rollouts[uid]; !follows || !known {
		return newest, false
	}
	stable, target := st.StableRevision, st.TargetRevision
	has := w.newestOn(uid, node)
	i := slices.IndexFunc(st.FailedRevisions, func(f v1alpha1.FailedRevision) bool { return f.Revision == target })
	switch {
	case stable == target:
		return target, true
	case stable == "" && i >= 0 && has != target:
		return newest, true // there is nothing to go back to
	case stable == "":
		return target, true
	case i >= 0 && st.FailedRevisions[i].Action == v1alpha1.FailureRollback:
		return stable, true
	case has == target:
		return target, true
	case !w.stepBegan(uid, node, &st):
		return stable, true
	case (i >= 0 || w.rollouts[uid].Following != course.Followed) && !w.departed(uid, node, &st):
		return stable, true
	}
	return target, true
}

// departed: the target's rules leave the node out, those of the stable revision do not, and
// it has no pod.
func (w *world) departed(uid types.UID, node string, st *v1alpha1.DaemonSetRolloutStatus) bool {
	return w.newestOn(uid, node) == "" && w.selects(uid, st.StableRevision, node) && !w.selects(uid, st.TargetRevision, node)
}

// newestOn is the revision of the newest pod that stays on the node.
func (w *world) newestOn(uid types.UID, node string) (revision string) {
	for _, p := range w.podsOf(uid, node) {
		if _, doomed := w.doomed[p.UID]; !p.Terminating && !doomed && p.Phase == fact.PodActive {
			revision = p.Revision
		}
	}
	return revision
}

func (w *world) selects(uid types.UID, revision, node string) bool {
	_, known := w.templates[uid][revision]
	run, stays := w.fitsBy(uid, revision, node)
	return run || !known && stays
}

// stepBegan lays the steps over all nodes that the stable revision, the target or a pod's
// own revision selects.
func (w *world) stepBegan(uid types.UID, node string, st *v1alpha1.DaemonSetRolloutStatus) bool {
	policy := w.policies[uid]
	if policy == nil {
		return false
	}
	fleet := rolloutpolicy.NewFleet(policy)
	for name, n := range w.nodes {
		if w.inFleet(uid, name, st) {
			fleet.Set(name, n.Labels)
		}
	}
	step, ok := fleet.Step(node)
	open, named := policy.StepNamed(st.Step)
	return ok && named && step.Compare(open) <= 0
}

func (w *world) inFleet(uid types.UID, node string, st *v1alpha1.DaemonSetRolloutStatus) bool {
	return w.selects(uid, st.StableRevision, node) || w.selects(uid, st.TargetRevision, node) ||
		slices.ContainsFunc(w.podsOf(uid, node), func(p fact.Pod) bool { return w.selects(uid, p.Revision, node) })
}
