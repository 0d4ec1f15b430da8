package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// churn has nodes leave and join, one of each a minute.
func (w *world) churn(minutes int) {
	for i := range minutes {
		names := w.names()
		w.removeNode(names[(i*7)%len(names)])
		w.addNode(fmt.Sprint("new-", w.now.Unix()), map[string]string{"zone": "z0"}, "")
		w.pass(time.Minute)
	}
}

// Where nodes leave and join all the time some of a step has always just begun: the step ends all the same, once
// those that it had are done, and so does the change.
func TestChangesEndWhereNodesComeAndGo(t *testing.T) {
	for _, waves := range []string{
		"waves: [{name: canary, percent: 50, soak: 10m}]",
		"waves: [{name: canary, count: 20, soak: 10m}]",
		"waves: [{name: all, percent: 100, soak: 10m}]",
		"waves: [{name: zones, each: zone, soak: 10m}]",
		"waves: [{name: all, nodes: {}, ramp: {from: 10}, soak: 10m}]",
	} {
		w := newWorld()
		w.addFleet(1, 1, 40, "v1")
		w.start(policy(t, waves), dsWith("v1", 20))
		w.update("v2")
		w.churn(5)
		if n := w.on("v2"); n > 30 && w.course.Status().Step == "canary" {
			t.Errorf("%s: the canary has spread over %d of 40 nodes", waves, n)
		}
		w.churn(115)
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseComplete {
			t.Errorf("%s: after two hours %s: %s", waves, phase, message)
		}
	}
}

// Nodes that come late into a step are changed within it: they are not left to what follows a change that is
// complete, which asks for no steps and counts no failures.
func TestNodesThatMoveIntoAStepAreWaitedForUntilTheirChangeBegins(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: first, nodes: {matchLabels: {zone: z0}}, approval: Manual}]\nfailure: {min: 2}"),
		dsWith("v1", 5))
	w.update("v2")
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step first is complete")
	w.bad = func(revision, node string) string {
		if revision == "v2" && node >= "z1" {
			return "it crashes"
		}
		return ""
	}
	for _, name := range w.names()[20:] {
		w.nodes[name].labels["zone"], w.nodes[name].object = "z0", nil
		w.tell(name)
	}
	w.expect(t, v1alpha1.PhaseProgressing, "step first")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseHalted, "it crashes")
	if n := w.downNodes(); n > 5 {
		t.Errorf("%d nodes are without a daemon, 5 may be", n)
	}
}

// A change goes on, and ends, though a node of few is dead: a share of nodes is rounded up.
func TestADeadNodeOfFewHoldsUpNobody(t *testing.T) {
	for _, test := range []struct {
		nodes, dead int
		max         string
		changed     int
	}{
		{2, 1, "20%", 1},
		{4, 1, "20%", 3},
		{4, 2, "20%", 0},
		{10, 2, "20%", 8},
		{10, 3, "20%", 0},
		{4, 1, "0%", 0},
		{4, 1, "0", 0},
	} {
		w := newWorld()
		w.addFleet(1, 1, test.nodes, "v1")
		w.start(policy(t, "nodeFaults: {max: "+test.max+"}"), dsWith("v1", 1))
		for _, name := range w.names()[:test.dead] {
			w.fault(name, "the node does not answer", true)
		}
		w.pass(time.Hour)
		w.update("v2")
		w.pass(time.Hour)
		if n := w.on("v2"); n != test.changed {
			phase, message := w.course.Phase()
			t.Errorf("%+v: %d have the change; %s: %s", test, n, phase, message)
		}
	}
}
