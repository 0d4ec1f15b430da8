package rollouts

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// PausedBecause is the annotation of a rollout that was made paused, with the reason. It
// counts until somebody writes into the rollout.
const PausedBecause = "everynode.io/paused-because"

const goOn = "; look at the change, then go on with everynode rollout resume daemonset/"

// erasedWhy says why what follows a rollout that somebody deleted is to be paused; "" if it
// need not be: nothing was under way, or the target has failed, which is remembered.
func erasedWhy(r *v1alpha1.DaemonSetRollout) string {
	s := &r.Status
	if (!underWay(s) || TargetFailed(s)) && !r.Spec.Paused {
		return ""
	}
	return fmt.Sprintf("its DaemonSetRollout was deleted while it was %s%s%s", s.Phase, goOn, r.Name)
}

// underWay reports whether a change is; the first revision of a daemon that no node is to have is none.
func underWay(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return s.TargetRevision != s.StableRevision && (s.StableRevision != "" || s.Phase != v1alpha1.PhaseComplete)
}

// erase notes that a rollout was deleted, if its DaemonSet needs one.
func (b *Book) erase(r *v1alpha1.DaemonSetRollout) {
	ds := b.sets[nameOf(r)]
	if ds == nil || r.Labels[OwnerLabel] != string(ds.UID) {
		return
	}
	if _, led := b.rows.Rollout(ds.UID); !led && b.chosen(ds) == nil {
		return
	}
	if why := erasedWhy(r); why != "" {
		b.erased[ds.UID] = why
	}
}

// wasErased says why the rollout that is to be made for the DaemonSet is to be paused, ""
// if it is not. What was deleted while no controller ran shows in the DaemonSet's own
// condition: it tells of a rollout that is not there. Its policy may be gone too, or not be read yet.
func (b *Book) wasErased(ds *appsv1.DaemonSet, found *policy) string {
	why, unsaid := b.erased[ds.UID], b.free[ds.UID] || b.Guest && found == nil
	if why != "" || b.sight.Rollouts != "" || unsaid {
		return why
	}
	if _, decided := b.rows.Rollout(ds.UID); decided {
		return ""
	}
	if phase := b.toldOf(ds); phase != "" && phase != string(v1alpha1.PhaseComplete) {
		b.erased[ds.UID] = fmt.Sprintf("its DaemonSetRollout was deleted while it was %s, and what it knew of stable and "+
			"failed revisions with it%s%s", phase, goOn, ds.Name)
	}
	return b.erased[ds.UID]
}

// toldOf is the phase of the rollout of which the DaemonSet's conditions tell; "" if they tell of none.
func (b *Book) toldOf(ds *appsv1.DaemonSet) string {
	for i := range ds.Status.Conditions {
		if phase, follows := b.phaseIn(&ds.Status.Conditions[i]); follows {
			return phase
		}
	}
	return ""
}

// phaseIn is the phase of a rollout of which a DaemonSet's condition tells; false if it tells of none. Beside another
// controller it is a condition of its own, which the leader leaves alone while there is no rollout.
func (b *Book) phaseIn(c *appsv1.DaemonSetCondition) (string, bool) {
	if b.Guest && c.Type == v1alpha1.RolloutReconciling {
		return c.Reason, c.Reason != admit.NotSeen
	}
	phase, follows := strings.CutPrefix(c.Reason, fact.FollowsPolicy)
	return phase, c.Type == fact.ConditionProgressing && follows && c.Reason != fact.NotStored
}

// pausedBecause says why the controller paused the rollout; "" if it did not, or somebody
// has written into it since.
func pausedBecause(r *v1alpha1.DaemonSetRollout) string {
	if !r.Spec.Paused || r.Generation > 1 {
		return ""
	}
	return r.Annotations[PausedBecause]
}
