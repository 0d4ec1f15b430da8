package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// The target has failed on a node, which has the stable revision again: by another policy its step comes later, and
// somebody deleted its pod. Then its machine dies. That is not the change's doing, and uses up nothing of its limit.
func TestADeadNodeWhereTheTargetFailedHoldsUpNobody(t *testing.T) {
	const failure = "\nfailure: {max: 60%, min: 3, startDeadline: 1m, restarts: 100}"
	w := newWorld()
	w.addNode("bad", nil, "v1")
	w.start(policy(t, "waves: []"+failure), dsWith("v1", 1))
	w.bad = func(revision, node string) string {
		if revision == "v2" && node == "bad" {
			return "it restarts"
		}
		return ""
	}
	w.update("v2")
	w.pass(5 * time.Minute)
	for _, name := range []string{"a", "b", "c", "d"} {
		w.addNode(name, map[string]string{"canary": name}, "v1")
	}
	w.course.SetPolicy(policy(t, "waves: [{name: canary, nodes: {matchLabels: {canary: a}}, approval: Manual}]"+failure), Followed, "")
	w.nodes["bad"].daemon, w.nodes["bad"].ready = standing.Daemon{}, time.Time{} // somebody deletes its pod
	w.tell("bad")
	w.pass(5 * time.Minute)
	if m := w.nodes["bad"]; m.daemon.Revision != "v1" || !m.daemon.Available || !w.course.state.failures.Has("bad") {
		t.Fatalf("it is not as it should be before: %+v", m.daemon)
	}
	w.fault("bad", "the node does not answer", true)
	d := &w.nodes["bad"].daemon
	d.Available, d.Since = false, time.Time{}
	w.tell("bad")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v2", Step: "canary"}})
	w.pass(10 * time.Minute)
	if n := w.on("v2"); n != 4 {
		phase, message := w.course.Phase()
		t.Errorf("%d of 4 nodes that are well have v2; %s: %s", n, phase, message)
	}
}
