package course

import (
	"fmt"
	"testing"
	"time"
)

const flappingPolicy = "waves: [{name: first, nodes: {matchLabels: {zone: z0}}, maxUnavailable: 5, soak: 10m}]\n" +
	"failure: {max: 10%, min: 3, startDeadline: 2m}"

// A few nodes of fifty answer and fall silent by turns. They have the revision, and so has everybody else of their
// step.
func TestNodesThatComeAndGoHoldUpNoStepForEver(t *testing.T) {
	for _, flapping := range []int{1, 2} { // three are as many as a revision may break
		w := newWorld()
		w.addFleet(2, 1, 25, "v1")
		w.start(policy(t, flappingPolicy), dsWith("v1", 5))
		w.pass(20 * time.Minute)
		w.update("v2")
		for s := range 6 * 3600 {
			for i := range flapping {
				name := fmt.Sprintf("z0-r0-%02d", i)
				switch (s + 400*i/flapping) % 400 { // silent for 60 s of 400
				case 100:
					w.fault(name, "node does not answer", true)
				case 160:
					w.fault(name, "", false)
				}
			}
			w.pass(time.Second)
		}
		phase, message := w.course.Phase()
		if n := w.on("v2"); n <= 25 {
			t.Errorf("%d nodes come and go: after six hours v2 is on %d of 50; %s: %s", flapping, n, phase, message)
		}
	}
}

// The same with daemons that were not available before their change, and become unready now and then since.
func TestDaemonsThatFlapAndWereBrokenBefore(t *testing.T) {
	for _, flapping := range []int{1, 2} {
		w := newWorld()
		w.addFleet(2, 1, 25, "v1")
		for i := range flapping {
			name := fmt.Sprintf("z0-r0-%02d", i)
			m := w.nodes[name]
			m.daemon.Available, m.daemon.Since, m.daemon.Trouble = false, time.Time{}, "crashes"
			w.tell(name)
		}
		w.start(policy(t, flappingPolicy), dsWith("v1", 5))
		w.pass(20 * time.Minute)
		w.update("v2")
		for s := range 6 * 3600 {
			for i := range flapping {
				name := fmt.Sprintf("z0-r0-%02d", i)
				if m := w.nodes[name]; (s+400*i/flapping)%400 == 100 && m.daemon.Revision == "v2" {
					m.daemon.Available, m.daemon.Since = false, time.Time{}
					m.ready = w.now.Add(20 * time.Second)
					w.tell(name)
				}
			}
			w.pass(time.Second)
		}
		phase, message := w.course.Phase()
		if n := w.on("v2"); n <= 25 {
			t.Errorf("%d daemons flap: after six hours v2 is on %d of 50; %s: %s", flapping, n, phase, message)
		}
	}
}
