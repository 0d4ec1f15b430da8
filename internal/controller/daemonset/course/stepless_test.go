package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A change without a stable revision whose policy is gone names no step. Who starts then and finds another revision at
// work on most nodes gives the target to no more than a step when there is a policy again.
func TestStepsAreAskedForAfterARestartWithoutAPolicy(t *testing.T) {
	w := newWorld()
	for i := range 10 {
		w.addNode(fmt.Sprintf("node-%d", i), nil, "v1")
	}
	w.policy = policy(t, "waves: [{name: canary, count: 1, approval: Manual}]")
	w.ds = dsWith("v2", 5)
	stored := v1alpha1.DaemonSetRolloutStatus{TargetRevision: "v2", Phase: v1alpha1.PhasePaused}
	w.againFrom(stored, nil, Gone, "its policy was deleted")
	w.course.SetPolicy(w.policy, Followed, "")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	if n := w.on("v2"); n != 1 {
		t.Errorf("%d nodes have v2", n)
	}
}

// Whether what a fleet has so far is stable is a matter of the nodes that it was for, and not of those that the next
// revision selects, also for a controller that starts between the two: else it gives that to all nodes at once, or asks
// for steps that nobody else asks for.
func TestWhoStartsTakesForStableWhatTheOneBeforeDid(t *testing.T) {
	for _, c := range []struct {
		name       string
		have, next int // of three nodes how many work, and how many of ten the next revision selects
		stable     string
	}{
		{"most work, and the next is for more", 2, 10, "v1"},
		{"most do not work, and the next is for those that do", 1, 1, ""},
	} {
		for _, restarted := range []bool{false, true} {
			w := newWorld()
			for i := range 10 {
				w.addNode(fmt.Sprintf("node-%d", i), nil, map[bool]string{true: "v1"}[i < c.have])
			}
			w.rules["v1"] = func(node string) bool { return node < "node-3" }
			w.rules["v2"] = func(node string) bool { return node < fmt.Sprintf("node-%d", c.next) || c.next == 10 }
			w.policy, w.ds = policy(t, "waves: [{name: canary, count: 1, approval: Manual}]"), dsWith("v1", 5)
			w.againFrom(v1alpha1.DaemonSetRolloutStatus{TargetRevision: "v1"}, w.policy, Followed, "")
			if st := w.course.Status(); st.StableRevision != "" || st.Phase == v1alpha1.PhaseComplete {
				t.Fatalf("%s: before, the rollout is %s: %s", c.name, st.Phase, st.Message)
			}
			stored := w.course.Status()
			if restarted {
				w.ds.Newest = "v2"
				w.againFrom(stored, w.policy, Followed, "")
			} else {
				w.update("v2")
			}
			if st := w.course.Status(); st.StableRevision != c.stable || st.TargetRevision != "v2" {
				t.Errorf("%s, restarted %v: %s is stable, want %q; %s: %s", c.name, restarted, st.StableRevision, c.stable,
					st.Phase, st.Message)
			}
		}
	}
}
