package plan

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// A node with a revision that has failed goes back to the stable one first. Where its own step begins while it has no daemon,
// and the new template does not want it, it leaves in that step all the same: the table counts as many as the first line.
func TestPlanOfANodeThatLeavesOnItsWayBack(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1", "example.com/agent:2")
	two := intstr.FromInt32(2)
	ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &two}
	for _, n := range []struct{ name, zone, revision string }{
		{"node-0", "b", hashes[0]}, {"node-1", "b", hashes[1]}, {"node-2", "a", hashes[0]},
	} {
		w.Node(n.name, surveytest.Label("zone", n.zone), surveytest.Label("rack", n.name))
		w.Pod(ds, n.name, n.revision, surveytest.ReadyAfter(20*time.Second))
	}
	w.Policy("careful", "waves: [{name: racks, each: rack}]\n")
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{
		Phase: v1alpha1.PhaseRolledBack, StableRevision: hashes[0], TargetRevision: hashes[1], Step: "racks/node-1",
		DaemonSetGeneration: ds.Generation, FailedRevisions: []v1alpha1.FailedRevision{{
			Revision: hashes[1], Why: "somebody aborted it", Action: v1alpha1.FailureRollback, Time: surveytest.Ago(time.Minute),
		}},
	})
	f := forecast(t, w, ds, edited(ds, func(ds *appsv1.DaemonSet) { edit(ds, "image and zone") }))
	leave := map[string]int{}
	for _, s := range f.Steps {
		leave[s.Name] = s.Leave
	}
	if f.Nodes.Leave != 2 || leave["racks/node-0"] != 1 || leave["racks/node-1"] != 1 {
		t.Errorf("of %+v nodes leave %v", f.Nodes, leave)
	}
}
