package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A node falls silent with the revision that it has, and misses the next one. When the template goes
// back to the first, what that node did before is no evidence against it.
func TestWhatFellBeforeIsNoEvidence(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		w := newWorld()
		w.addFleet(2, 2, 5, "v0")
		w.start(policy(t, "failure: {min: 1, then: Rollback}\nnodeFaults: {max: 50%}"), dsWith("v0", 5))
		w.update("v1")
		w.pass(2 * time.Minute)
		w.fault(w.names()[3], "node does not answer", true)
		w.update("v2")
		w.pass(2 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "19 of 20")
		w.update("v1")
		if restarts {
			w.store()
			w.crash()
		}
		w.pass(2 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "19 of 20 nodes have revision v1")
	}
}
