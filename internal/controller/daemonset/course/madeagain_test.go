package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// What the way back took, on nodes that are deleted and made again, uses up the limit on the next way back too.
func TestAbsenteesOfAWayBackCountOnTheNextOne(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 1, 20, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 10, maxUnavailable: 10, soak: 24h}]\n"+
			"failure: {startDeadline: 5m}"), dsWith("v1", 2))
		w.update("v2")
		w.pass(time.Minute)
		w.refuses = "v1"
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
		w.pass(time.Minute)
		if n := w.working(); n != 18 {
			t.Fatalf("%d work", n)
		}
		if again {
			for _, name := range w.names() {
				if m := w.nodes[name]; !m.daemon.Available {
					w.removeNode(name)
					w.addNode(name, m.labels, "")
					w.nodes[name].daemon.Refused, w.nodes[name].daemon.RefusedOf = "the API refuses its pod", "v1"
					w.tell(name)
				}
			}
		}
		w.pass(time.Minute)
		if n := w.working(); n != 18 {
			t.Errorf("made again: %t: before the next change %d work", again, n)
		}
		// Another template in between, and nothing of it begins.
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
		w.update("v3")
		w.pass(time.Second)
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
		w.update("v1")
		w.pass(10 * time.Minute)
		if n := w.working(); n != 18 {
			phase, message := w.course.Phase()
			t.Errorf("made again: %t: %d of 20 work, and 2 may be unavailable; %s: %s", again, n, phase, message)
		}
	}
}
