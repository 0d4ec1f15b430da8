package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A fleet that falls silent node by node after its change costs each node the same, the
// last as much as the first: none is judged again for all that fell silent before.
func TestSilenceOfAFleetCostsNoSquare(t *testing.T) {
	const fleet, part = 8000, 1000
	w := newWorld()
	for i := range fleet {
		w.addNode(fmt.Sprintf("n%04d", i), nil, "v1")
	}
	w.start(policy(t, "waves: [{name: all, percent: 100, maxUnavailable: 100%, soak: 1h}]\nnodeFaults: {max: 100%}"), daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Second)
	var took []time.Duration
	for names := w.names(); len(names) > 0; names = names[part:] {
		begin := time.Now()
		for _, name := range names[:part] {
			w.fault(name, "silent", true)
		}
		took = append(took, time.Since(begin))
	}
	w.expect(t, v1alpha1.PhaseHalted, "it stopped answering")
	if first, last := took[0], took[len(took)-1]; last > 10*first+50*time.Millisecond {
		t.Errorf("the first %d took %s, the last %s", part, first, last)
	}
}

// One that counted as failed, healed, and fell out of order again, counts again.
func TestSilentAgainAfterItHealed(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: all, percent: 100, maxUnavailable: 100%, soak: 20s}]\nfailure: {max: 10%, min: 1}\nnodeFaults: {max: 100%}"), daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Second)
	silent := func(name, why string) { w.fault(name, why, why != ""); w.pass(time.Second) }
	silent("z0-r0-01", "silent")
	if n := w.course.failures(); n != 1 {
		t.Fatalf("%d count as failed after the first", n)
	}
	silent("z0-r0-01", "")
	w.pass(10 * time.Second)
	silent("z0-r0-01", "silent")
	silent("z0-r0-02", "silent")
	w.expect(t, v1alpha1.PhaseHalted, "failed on 2 of 10 nodes")
}

// A node says itself since when its pod is ready. One that moves that on for ever, without
// the pod ever being seen unready, holds nobody up for ever, and is no evidence; it counts
// as out of order until it has soaked like any other.
func TestNodeThatIsReadyAnewForEverIsNotWaitedFor(t *testing.T) {
	const liar = "z0-r0-01"
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}, maxUnavailable: 5, soak: 1m, approval: Manual}]\nfailure: {max: 0, startDeadline: 2m}"), daemonSet("v1"))
	w.update("v2")
	lie := func(d time.Duration) {
		for end := w.now.Add(d); w.now.Before(end); {
			w.pass(5 * time.Second)
			if m := w.nodes[liar]; m.daemon.Revision == "v2" && m.daemon.Available {
				m.daemon.Since = w.now
				w.tell(liar)
			}
		}
	}
	lie(3 * time.Minute)
	w.expect(t, v1alpha1.PhaseSoaking, "step canary: 1 node soak")
	lie(2 * time.Minute)
	if v, why := w.course.Verdict(liar); v != NodeFault || why != "it says anew and anew that its pod has just become ready" {
		t.Errorf("%s: %s", v, why)
	}
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	w.pass(2 * time.Minute)
	if v, why := w.course.Verdict(liar); v != Current || why != "" {
		t.Errorf("it has soaked, and is %s: %s", v, why)
	}
}

// A pod that was seen unready begins its soak anew, as often as it takes.
func TestSoakBeginsAnewWithEachBreak(t *testing.T) {
	const flaps = "z0-r0-01"
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}, maxUnavailable: 5, soak: 2m}]\nfailure: {max: 0, startDeadline: 1h}"), daemonSet("v1"))
	w.update("v2")
	w.pass(30 * time.Second)
	for range 70 {
		m := w.nodes[flaps]
		m.daemon.Available, m.daemon.Since, m.ready = false, time.Time{}, w.now.Add(2*time.Second)
		w.tell(flaps)
		w.pass(50 * time.Second)
		if phase, message := w.course.Phase(); phase == v1alpha1.PhaseComplete {
			t.Fatalf("complete at %s: %s", w.now, message)
		}
	}
}
