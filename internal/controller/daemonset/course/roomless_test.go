package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Most nodes have no room for the stable revision. One that asks for less is let begin, and takes nothing from the
// others before their step; one that has no room there either stops where it finds that out.
func TestARevisionThatAsksForLessGoesOut(t *testing.T) {
	for _, fits := range []bool{true, false} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		full := func(name string) {
			d := &w.nodes[name].daemon
			d.Available, d.Since, d.Bound, d.NoRoom = false, time.Time{}, time.Time{}, "cpu short"
			w.tell(name)
		}
		for i := range 6 {
			full(fmt.Sprintf("z0-r0-%02d", i))
		}
		w.start(policy(t, "waves: [{name: canary, count: 1}]"),
			daemonSet("v1"))
		w.expect(t, v1alpha1.PhaseComplete, "4 of 10 nodes have revision v1; 6 are out of order")
		w.update("v2")
		if v, why := w.course.Verdict("z0-r0-00"); v != standing.NoRoom || why != "no room for its pod of revision v1, which it is to have until its step begins: cpu short" {
			t.Errorf("a node before its step is %s: %s", v, why)
		}
		for range 600 {
			w.pass(time.Second)
			for i := 0; !fits && i < 6; i++ {
				if name := fmt.Sprintf("z0-r0-%02d", i); w.nodes[name].daemon.Revision == "v2" {
					full(name)
				}
			}
		}
		if !fits {
			w.expect(t, v1alpha1.PhasePaused, "nothing new begins: ")
			continue
		}
		w.expect(t, v1alpha1.PhaseComplete, "10 of 10 nodes have revision v2")
	}
}
