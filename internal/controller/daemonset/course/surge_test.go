package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Second pods of the stable revision that do not come up hold up no further change.
func TestSecondPodsThatDoNotComeUpHoldUpNoChange(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 4, "v2")
	ds := dsWith("v2", 2)
	ds.Surge = true
	stuck := []string{"z0-r1-01", "z0-r1-02", "z0-r1-03"}
	for _, name := range stuck {
		w.nodes[name].daemon = standing.Daemon{Revision: "v2", Available: true, Two: true, Made: w.now, Bound: w.now}
	}
	w.policy, w.ds = policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}}]"), ds
	w.againFrom(v1alpha1.DaemonSetRolloutStatus{StableRevision: "v2", TargetRevision: "v2"}, w.policy, Followed, "")
	w.pass(time.Minute)
	w.update("v3")
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseProgressing, "step rest")
	for _, name := range stuck { // neither pod is what it is to have now: one of them goes
		w.nodes[name].daemon = standing.Daemon{Revision: "v1", Available: true, Since: w.now, Made: w.now, Bound: w.now}
		w.tell(name)
	}
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "8 of 8")
}
