package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A revision that runs nowhere is not the stable one, however little there is to wait for.
func TestWhatRanNowhereIsNotStable(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 4, "v1")
	w.start(policy(t, "{}"), daemonSet("v1"))
	for _, name := range w.names() {
		w.fault(name, "the node does not answer", true)
	}
	w.pass(time.Minute)
	w.update("v2")
	w.pass(time.Hour)
	phase, message := w.course.Phase()
	if stable := w.course.Status().StableRevision; stable != "v1" || phase == v1alpha1.PhaseComplete {
		t.Errorf("all nodes are out of order, and %q is stable: %s: %s", stable, phase, message)
	}
}

// Two dead nodes in one rack do not explain themselves by the rack while too few nodes elsewhere
// have the target: six of them would have to be missing.
func TestTwoDeadNodesAreNoLostRack(t *testing.T) {
	for _, tc := range []struct {
		racks  int // of the canary, each with two nodes
		blamed bool
	}{{2, true}, {8, false}} {
		w := newWorld()
		w.addFleet(1, 20, 2, "v1")
		for _, name := range w.names()[:2*tc.racks] {
			labels := map[string]string{"canary": "yes"}
			for key, value := range w.nodes[name].labels {
				labels[key] = value
			}
			w.addNode(name, labels, "v1")
		}
		w.start(policy(t, `
waves: [{name: canary, nodes: {matchLabels: {canary: "yes"}}, maxUnavailable: 100%, soak: 10m}]
domains: [{key: rack, maxUnavailable: 2}]
failure: {max: 0, min: 2}
`), daemonSet("v1"))
		w.update("v2")
		w.pass(time.Minute)
		if n := w.on("v2"); n != 2*tc.racks {
			t.Fatalf("%d nodes have v2, want %d", n, 2*tc.racks)
		}
		for _, name := range w.names()[:2] {
			w.fault(name, "the node does not answer", true)
		}
		w.pass(2 * time.Minute)
		phase, message := w.course.Phase()
		if blamed := phase == v1alpha1.PhaseHalted; blamed != tc.blamed {
			t.Errorf("with a canary in %d racks: %s: %s; blamed: %t, want %t", tc.racks, phase, message, blamed, tc.blamed)
		}
	}
}

// Windows are looked at when they may have changed, and not with every event.
func TestWindowsAreLookedAtWhenTheyChange(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 2, "v1")
	w.start(policy(t, `windows: [{days: [Mon], from: "11:00", to: "12:00"}]`), daemonSet("v1"))
	w.update("v2")
	w.expect(t, v1alpha1.PhaseOutsideWindow, "the next window opens at Mon 2026-03-02 11:00 UTC")
	looked := w.course.window
	w.pass(time.Minute)
	if w.course.window != looked {
		t.Error("the windows were looked at again before they change")
	}
	w.pass(time.Hour)
	if w.on("v2") != 2 {
		t.Errorf("in the window %d nodes have v2", w.on("v2"))
	}
	w.course.SetPolicy(policy(t, `windows: [{days: [Tue], from: "11:00", to: "12:00"}]`), Followed, "")
	w.update("v3")
	w.expect(t, v1alpha1.PhaseOutsideWindow, "the next window opens at Tue 2026-03-03 11:00 UTC")
}
