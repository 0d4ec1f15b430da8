package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// While the step stands still because somebody paused it, no node that comes into it is late.
func TestWhoComesWhileAStepStandsStillIsWaitedFor(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 1, 4, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone, soak: 10m}]\nfailure: {startDeadline: 5m}"), dsWith("v1", 4))
	w.update("v2")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	w.pass(time.Hour)
	if w.on("v2") > 0 {
		t.Fatal("it is paused")
	}
	for _, n := range w.names() { // other nodes that have the stable revision take the place of those of the first zone
		if n < "z1" {
			w.removeNode(n)
			w.addNode(n+"-b", map[string]string{"zone": "z0"}, "v1")
		}
	}
	w.pass(time.Minute)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
	w.pass(time.Minute)
	p, m := w.course.Phase()
	for _, n := range w.names() {
		if n >= "z1" && w.nodes[n].daemon.Revision == "v2" {
			t.Fatalf("a minute after it was resumed %s has v2, and the first zone was to soak for ten; %s: %s", n, p, m)
		}
	}
}
