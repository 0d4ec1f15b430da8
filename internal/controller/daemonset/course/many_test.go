package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// A fleet that falls silent node by node after its change costs each node the same, the
// last as much as the first: none is judged again for all that fell silent before.
func TestSilenceOfAFleetCostsNoSquare(t *testing.T) {
	const fleet, part = 8000, 1000
	w := newWorld()
	for i := range fleet {
		w.addNode(fmt.Sprintf("n%04d", i), nil, "v1")
	}
	w.start(policy(t, "waves: [{name: all, percent: 100, maxUnavailable: 100%, soak: 1h}]\nnodeFaults: {max: 100%}"),
		daemonSet("v1"))
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

// A policy that makes a step of each node holds up the change of a large fleet, and says why;
// a failed revision is left all the same.
func TestAStepForEachNodeOfALargeFleet(t *testing.T) {
	w := newWorld()
	for i := range rolloutpolicy.MaxSteps + 5 {
		name := fmt.Sprintf("n%04d", i)
		w.addNode(name, map[string]string{"host": name}, "v1")
	}
	w.addNode("n0000-b", map[string]string{"host": "n0000"}, "v1") // in the step of another
	w.start(policy(t, "waves: [{name: hosts, each: host}]\nfailure: {max: 0, then: Rollback}"), daemonSet("v1"))
	if status := w.course.Status(); len(status.Steps) != rolloutpolicy.MaxSteps {
		t.Errorf("the status has %d steps", len(status.Steps))
	}
	w.update("v2")
	w.expect(t, v1alpha1.PhasePaused, "nothing new begins: the policy makes 1005 steps of this fleet")
	if p := w.take(5); len(p) > 0 || w.course.begun(w.course.nodes["n0000"].step) {
		t.Fatalf("begun: %+v", p)
	}
	for i := range 5 {
		w.removeNode(fmt.Sprintf("n%04d", i+100))
	}
	w.expect(t, v1alpha1.PhaseProgressing, "step hosts/n0000")
	if p := w.take(1); len(p) != 1 || p[0].Node != "n0000" {
		t.Fatalf("begun: %+v", p)
	}
	m := w.nodes["n0000"]
	m.daemon = standing.Daemon{}
	w.create("n0000")
	w.tell("n0000")
	for i := range 5 {
		name := fmt.Sprintf("n%04d", i+100)
		w.addNode(name, map[string]string{"host": name}, "v1")
	}
	if p := w.take(5); len(p) > 0 {
		t.Fatalf("begun: %+v", p)
	}
	m.daemon.Available, m.daemon.Restarts, m.daemon.Trouble = false, 5, "no such device"
	w.tell("n0000")
	w.expect(t, v1alpha1.PhaseRolledBack, "no such device")
	if p := w.take(5); len(p) != 1 || p[0].To != "v1" {
		t.Fatalf("does not go back: %+v", p)
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
	if n := w.course.state.failures.Count(); n != 1 {
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
	w.expect(t, v1alpha1.PhaseSoaking, "step canary: 1 node soaks")
	lie(2 * time.Minute)
	if v, why := w.course.Verdict(liar); v != standing.NodeFault ||
		why != "its pod keeps losing its readiness, for longer than the soak may take" {
		t.Errorf("%s: %s", v, why)
	}
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	w.pass(2 * time.Minute)
	if v, why := w.course.Verdict(liar); v != standing.Current || why != "" {
		t.Errorf("it has soaked, and is %s: %s", v, why)
	}
}

// A pod that was seen unready begins its soak again, as often as it takes.
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
