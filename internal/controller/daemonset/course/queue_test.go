package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestFullDomainLeavesItsGroupsAlone: the racks of a zone stand in one line, which is closed as a whole when
// the zone fills.
func TestFullDomainLeavesItsGroupsAlone(t *testing.T) {
	const racks = 300
	w := newWorld()
	for r := range racks {
		labels := map[string]string{"zone": "z", "rack": fmt.Sprintf("r%03d", r)}
		w.addNode(fmt.Sprintf("n%03d", r), labels, "v1")
	}
	w.start(policy(t, "domains: [{key: zone, maxUnavailable: 2}, {key: rack, maxUnavailable: 1}]"), daemonSet("v1"))
	w.update("v2")
	s := w.course.steps[w.course.nodes["n100"].step]
	lines := map[*line]int{}
	for _, wait := range s.waiting {
		lines[wait.line]++
	}
	if len(lines) != 1 || s.open.Len() != 1 {
		t.Fatalf("%d racks stand in %d lines, %d of them open", len(s.waiting), len(lines), s.open.Len())
	}
	if taken := w.take(10); len(taken) != 2 || s.open.Len() != 0 {
		t.Fatalf("%+v were taken, %d lines are open; the zone has room for 2", taken, s.open.Len())
	}
	for _, wait := range s.waiting {
		if lines[wait.line] == 0 {
			t.Fatalf("a rack has left the line, which is for %v now", wait.line.domain.place)
		}
	}
	w.expect(t, v1alpha1.PhaseProgressing, "2 under way")
}

// TestWhatIsTakenAwayCannotFail: the target was given to a node and leaves it out since; that its pod crashes
// until it goes is no evidence.
func TestWhatIsTakenAwayCannotFail(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1, soak: 1h}]\nfailure: {max: 0, min: 1}"), daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Second)
	leaving := ""
	for name, m := range w.nodes {
		if m.daemon.Revision == "v2" {
			leaving = name
		}
	}
	w.rules["v2"] = func(node string) bool { return node != leaving }
	w.tellRules()
	m := w.nodes[leaving]
	m.daemon.Available, m.daemon.Since, m.daemon.Restarts, m.daemon.Trouble = false, time.Time{}, 50, "crashes"
	w.tell(leaving)
	if n := w.course.failures(); n != 0 {
		t.Errorf("%d nodes count as failed: %+v", n, w.course.state.failures)
	}
}

// TestTakenShowsAtOnce: what the rollout says follows from the nodes that were taken just now.
func TestTakenShowsAtOnce(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 3, "v1")
	w.addNode("older", nil, "v0")
	w.start(policy(t, "{}"), daemonSet("v1"))
	w.expect(t, v1alpha1.PhaseProgressing, "1 node has another revision than v1")
	w.take(1)
	if phase, message := w.course.Phase(); phase != v1alpha1.PhaseComplete {
		t.Errorf("the last node has begun, and the rollout is %s: %s", phase, message)
	}
}
