package course

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// A zone that somebody works on is waited for by nobody, and gets the revision when it is back, within the limits.
func TestAZoneInMaintenanceHoldsUpNoChange(t *testing.T) {
	for _, stops := range []bool{false, true} {
		w := newWorld()
		w.addFleet(3, 2, 5, "v1")
		w.start(policy(t, `waves: [{name: canary, count: 2, soak: 5s}, {name: zones, each: zone, maxUnavailable: 2}]
nodeFaults: {max: 1}`), daemonSet("v1"))
		w.pass(time.Minute)
		for _, name := range w.names()[10:20] { // a third of the fleet
			w.maintain(name, stops)
		}
		w.update("v2")
		w.check = func(p Permit) {
			if m := w.nodes[p.Node]; m.fault != "" {
				t.Errorf("%s begins, and somebody works on it", p.Node)
			}
		}
		w.pass(10 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "20 of 30 nodes have revision v2; 10 in maintenance")
		if n := w.course.Status().Counts[string(standing.InMaintenance)]; n != 10 || w.on("v1") != 10 {
			t.Errorf("%d are counted as in maintenance, %d have v1; want 10", n, w.on("v1"))
		}
		name := w.names()[10]
		if v, why := w.course.Verdict(name); v != standing.InMaintenance || why != inMaintenance {
			t.Errorf("%s: %s, %q", name, v, why)
		}
		for _, name := range w.names()[10:20] {
			w.fault(name, "", false)
		}
		for range 600 {
			w.pass(time.Second)
			if n := w.downNodes(); !stops && n > 3 {
				t.Fatalf("%d of those that are back are without a daemon, want at most 3", n)
			}
		}
		w.expect(t, v1alpha1.PhaseComplete, "30 of 30 nodes have revision v2")
	}
}

// A canary on which somebody works shows nothing, as one that is out of order; it goes on by itself.
func TestACanaryInMaintenanceIsWaitedFor(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1}]"), daemonSet("v1"))
	var canary string
	for _, name := range w.names() {
		if w.course.StepOf(name) == "canary" {
			canary = name
		}
	}
	w.maintain(canary, false)
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "no node of step canary can take the change: "+canary+" ("+inMaintenance+")")
	w.fault(canary, "", false)
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "5 of 5 nodes have revision v2")
}

// What the change took is ours until it is available again, whatever somebody does to the node meanwhile.
func TestWhatAChangeTookIsOursInMaintenance(t *testing.T) {
	w := newWorld()
	w.starts = 20 * time.Second
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "{}"), dsWith("v1", 1))
	w.update("v2")
	w.pass(5 * time.Second)
	w.maintain("z0-r0-00", true)
	w.pass(time.Hour)
	if n := w.on("v1"); n != 9 {
		t.Errorf("%d nodes have v1, want the 9 that wait for the one that was taken", n)
	}
	_, message := w.course.Phase()
	if want := "the limit is used up, and is not freed by 1 node: z0-r0-00 (" + inMaintenance + ")"; !strings.Contains(message, want) {
		t.Errorf("it says %q, want %q", message, want)
	}
	w.again() // the next controller knows it too
	w.pass(time.Hour)
	if n := w.on("v1"); n != 9 {
		t.Errorf("after a restart %d nodes have v1, want 9", n)
	}
	w.fault("z0-r0-00", "", false)
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "10 of 10")
}

// A node without a daemon counts in its rack, and who waits for it there holds up no step.
func TestMaintenanceCountsInDomains(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 3, 5, "v1")
	w.start(policy(t, "waves: [{name: racks, each: rack}]\ndomains: [{key: rack, maxUnavailable: 1}]"), dsWith("v1", 3))
	w.maintain("z0-r1-03", true)
	w.update("v2")
	w.pass(10 * time.Minute)
	for _, name := range w.names() {
		if has, want := w.nodes[name].daemon.Revision, map[bool]string{true: "v1", false: "v2"}[name[:5] == "z0-r1"]; has != want {
			t.Errorf("%s has %s, want %s", name, has, want)
		}
	}
	w.expect(t, v1alpha1.PhaseComplete, "10 of 15 nodes have revision v2; 1 in maintenance; 4 wait for such a node in their domain")
	w.fault("z0-r1-03", "", false)
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "15 of 15")
}

// Nodes that somebody takes down soon after their change, or on which the revision does not come up then, are no
// evidence; not either when the work ends before they answer.
func TestMaintenanceIsNoEvidence(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 10, soak: 20m}]\nfailure: {max: 0, min: 1, then: Rollback, startDeadline: 1m}"), dsWith("v1", 10))
	w.update("v2")
	w.pass(2 * time.Minute)
	var changed []string
	for _, name := range w.names() {
		if w.nodes[name].daemon.Revision == "v2" {
			w.maintain(name, true)
			changed = append(changed, name)
		}
	}
	w.pass(3 * time.Minute)
	for _, name := range changed {
		m := w.nodes[name]
		m.fault, m.silent, m.since, m.maintained = "the node does not answer", true, w.now.Add(-2*time.Minute), false
		w.tell(name)
	}
	w.pass(20 * time.Second)
	for _, name := range changed {
		w.fault(name, "", false)
	}
	w.pass(time.Hour)
	if len(changed) != 10 {
		t.Errorf("%d nodes were changed, want 10", len(changed))
	}
	w.expect(t, v1alpha1.PhaseComplete, "40 of 40 nodes have revision v2")
}

// What fell before somebody began to work on it, as tools for the repair of nodes do, goes on counting.
func TestWhatFellBeforeItsMaintenanceIsEvidence(t *testing.T) {
	for _, waves := range killPolicies {
		w, killed := killing(t, waves, 15*time.Second, func(w *world, name string) { w.maintain(name, true) })
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
			t.Errorf("%q: %d of 60 fell; %s: %s", waves, killed, phase, message)
		}
	}
}

// Nor is it forgotten when that ends before the node answers.
func TestWhatFellBeforeItsMaintenanceIsEvidenceAfterIt(t *testing.T) {
	for _, waves := range killPolicies {
		w, killed := killing(t, waves, 15*time.Second, func(w *world, name string) {
			m := w.nodes[name]
			why, since := m.fault, m.since
			w.maintain(name, true)
			m.fault, m.silent, m.since, m.maintained = why, true, since, false
			w.tell(name)
		})
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
			t.Errorf("%q: %d of 60 fell; %s: %s", waves, killed, phase, message)
		}
	}
}

// Nobody waits for images of a node on which somebody works.
func TestNobodyWaitsForImagesOfANodeInMaintenance(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 6, "v1")
	ds := daemonSet("v1")
	ds.Fetches = true
	w.start(policy(t, "waves: [{name: all, percent: 100, fetch: true, fetchDeadline: 1h}]"), ds)
	w.maintain("z0-r0-03", false)
	w.nodes["z0-r0-03"].fetches = "never"
	w.update("v2")
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "5 of 6 nodes have revision v2; 1 in maintenance")
	w.nodes["z0-r0-03"].fetches = ""
	w.fault("z0-r0-03", "", false)
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "6 of 6")
}

// A new DaemonSet, and a first daemon, do not come to a node on which somebody works before that is over.
func TestFirstDaemonsWaitForTheEndOfMaintenance(t *testing.T) {
	w := newWorld()
	for i := range 3 {
		w.addNode(fmt.Sprint("n", i), nil, "")
	}
	w.maintain("n1", false)
	w.start(policy(t, "{}"), daemonSet("v1"))
	w.pass(time.Minute)
	if n := w.on("v1"); n != 2 {
		t.Errorf("%d nodes have a daemon, want 2", n)
	}
	w.fault("n1", "", false)
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "3 of 3")
}

// It is by what is told that a fault is somebody's work, not by its words.
func TestAFaultBecomesMaintenance(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 2, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1, soak: 1h}]"), daemonSet("v1"))
	w.update("v2")
	w.fault("z0-r0-00", inMaintenance, false)
	w.fault("z0-r0-01", inMaintenance, false)
	m := w.nodes["z0-r0-00"]
	m.maintained, m.since = true, m.since.Add(0)
	w.tell("z0-r0-00")
	if v, _ := w.course.Verdict("z0-r0-00"); v != standing.InMaintenance {
		t.Errorf("it is %s", v)
	}
}

// One that comes up and falls by turns while somebody restarts it is not out of order.
func TestWhatFlapsInMaintenanceIsNotOutOfOrder(t *testing.T) {
	in := standing.Input{
		Now: time.Unix(1000, 0), Want: "v2", Target: "v2", Changing: true, Fault: inMaintenance, Maintained: true,
		Daemon: &standing.Daemon{Revision: "v2", Since: time.Unix(999, 0)}, Soaked: time.Unix(1100, 0), Patience: time.Unix(900, 0),
	}
	if s := standing.Classify(&in); s.Verdict() != standing.InMaintenance || s.Counts(standing.Nobody, false).Has(standing.Sick) {
		t.Errorf("it is %s", s.Verdict())
	}
	if at := in.Wake(standing.Classify(&in)); !at.Equal(in.Soaked) {
		t.Errorf("it wakes at %s, want %s", at, in.Soaked)
	}
}
