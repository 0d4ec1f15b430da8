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
