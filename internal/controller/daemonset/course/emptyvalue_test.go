package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A first step whose label has an empty value asks, also when its node has gone, and under the next controller.
func TestAManualStepOfAnEmptyValueAsksAlsoWithoutNodes(t *testing.T) {
	for _, value := range []string{"a", ""} {
		for _, restart := range []bool{false, true} {
			w := newWorld()
			w.addNode("one", map[string]string{"zone": value}, "v1")
			for _, n := range []string{"x", "y"} {
				w.addNode(n, map[string]string{"zone": n}, "v1")
			}
			w.start(policy(t, "waves: [{name: zones, each: zone, approval: Manual}]"), dsWith("v1", 1))
			w.update("v2")
			w.pass(time.Minute)
			w.expect(t, v1alpha1.PhaseWaitingForApproval, "step zones/"+value+" is complete")
			w.removeNode("one")
			w.store()
			if restart {
				w.crash()
			}
			w.pass(time.Minute)
			phase, message := w.course.Phase()
			if n := w.on("v2"); n > 0 {
				t.Errorf("value %q: nobody approved, and %d have v2; %s: %s", value, n, phase, message)
			}
		}
	}
}
