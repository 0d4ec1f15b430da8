package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestFullDomainHoldsUpItsGroups: of the racks of a zone only as many are changed as the zone has room for.
func TestFullDomainHoldsUpItsGroups(t *testing.T) {
	const racks = 30
	w := newWorld()
	for r := range racks {
		labels := map[string]string{"zone": "z", "rack": fmt.Sprintf("r%03d", r)}
		w.addNode(fmt.Sprintf("n%03d", r), labels, "v1")
	}
	w.start(policy(t, "domains: [{key: zone, maxUnavailable: 2}, {key: rack, maxUnavailable: 1}]"), daemonSet("v1"))
	w.update("v2")
	if taken := w.take(10); len(taken) != 2 {
		t.Fatalf("%+v were taken; the zone has room for 2", taken)
	}
	w.expect(t, v1alpha1.PhaseProgressing, "2 under way")
}

// A daemon that is about to be available excuses nobody in its domain: they wait for it, and the step for them.
func TestADaemonThatComesHoldsUpItsDomain(t *testing.T) {
	for comes, phase := range map[time.Duration]v1alpha1.Phase{
		time.Minute: v1alpha1.PhaseProgressing, 0: v1alpha1.PhaseWaitingForApproval,
	} {
		w := newWorld()
		w.addNode("a", map[string]string{"rack": "r"}, "v1")
		w.addNode("b", map[string]string{"rack": "r", "first": "yes"}, "v1")
		w.addNode("c", map[string]string{"rack": "s"}, "v1")
		m := w.nodes["a"]
		m.fault, m.daemon.Available, m.daemon.Since = "it is out of order", false, time.Time{}
		if comes > 0 {
			m.daemon.Comes = w.now.Add(comes)
		}
		w.tell("a")
		w.start(policy(t, "waves: [{name: first, nodes: {matchLabels: {first: \"yes\"}}}]\nnodeFaults: {max: 100%}\n"+
			"domains: [{key: rack, maxUnavailable: 1}]"), daemonSet("v1"))
		w.update("v2")
		w.pass(10 * time.Second)
		w.expect(t, phase, "first")
	}
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
	if n := w.course.state.failures.Count(); n != 0 {
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
