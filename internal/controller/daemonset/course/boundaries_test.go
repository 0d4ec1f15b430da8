package course

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// Whoever has to approve a step is asked also when the revision fails on some of its nodes,
// within the limit: that is what there is to look at.
func TestAStepWithAFailureIsNotLeftUnasked(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 4, approval: Manual, maxUnavailable: 4}]\nfailure: {max: 50%, min: 10, restarts: 3}"), daemonSet("v1"))
	bad := ""
	w.bad = func(revision, node string) string {
		if revision == "v2" && (bad == "" || bad == node) {
			bad = node
			return "no such device"
		}
		return ""
	}
	w.update("v2")
	w.pass(30 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete, but the revision fails on 1 node ("+bad+")")
	if n := w.on("v2"); n != 4 {
		t.Errorf("%d nodes have v2", n)
	}
}

// The limit of a step counts the step's own nodes: what fails in one that is over does not
// slow down the next.
func TestAStepsLimitCountsItsOwnNodes(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone, maxUnavailable: 2}]\nfailure: {max: 50%, min: 10, restarts: 3}"), daemonSet("v1"))
	w.bad = func(revision, node string) string {
		if revision == "v2" && node == "z0-r0-03" {
			return "no such device"
		}
		return ""
	}
	w.update("v2")
	if most := w.most(func(m *machine) bool {
		return m.labels["zone"] == "z1" && m.daemon.Revision == "v2" && !m.daemon.Available
	}); most != 2 {
		t.Errorf("%d nodes of the second step were changed at a time, want 2", most)
	}
}

// A revision is suspicious when more than three times as many of the changed nodes fell
// silent, and not with just three times as many.
func TestSuspicionBeginsAboveThreeTimes(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "v1")
	w.start(policy(t, "waves: [{name: half, nodes: {matchLabels: {rack: z0-r0}}, maxUnavailable: 100%, soak: 1h}]\nfailure: {max: 50%}\nnodeFaults: {max: 100%}"), daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Second)
	for _, name := range []string{"z0-r1-00", "z0-r0-00", "z0-r0-01", "z0-r0-02"} {
		w.fault(name, "does not answer", true)
		w.pass(time.Second)
	}
	if n := w.course.state.failures.Count(); n != 0 {
		t.Errorf("3 of 10 changed nodes and 1 of 10 others are silent, and %d count as failed", n)
	}
	w.fault("z0-r0-03", "does not answer", true)
	w.pass(time.Second)
	if n := w.course.state.failures.Count(); n != 4 {
		t.Errorf("4 of 10 changed nodes and 1 of 10 others are silent, and %d count as failed", n)
	}
}

// A step from which daemons are taken away soaks from when the last one is gone, however
// long that took.
func TestAStepSoaksFromTheLastDeparture(t *testing.T) {
	w := newWorld()
	w.stops = time.Minute
	w.addFleet(2, 1, 4, "v1")
	w.rules["v2"] = func(node string) bool { return node >= "z0-r0-02" }
	w.start(policy(t, "waves: [{name: zones, each: zone, maxUnavailable: 4, soak: 30s}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(80 * time.Second)
	if phase, message := w.course.Phase(); phase != v1alpha1.PhaseSoaking || !strings.Contains(message, "the daemon was taken away from 2 nodes") {
		t.Errorf("20 seconds after the last departure: %s: %s", phase, message)
	}
	if step := w.course.Status().Step; step != "zones/z0" {
		t.Errorf("step %s has begun", step)
	}
	if soaked := w.course.Status().Soaked; soaked == nil || soaked.Duration > 20*time.Second {
		t.Errorf("20 seconds after the last departure the status says that it has soaked for %v", soaked)
	}
	w.pass(20 * time.Second)
	if step := w.course.Status().Step; step != "zones/z1" {
		t.Errorf("40 seconds after the last departure step %s is under way", step)
	}
}

// Nodes of a ramp that are under way move into an earlier step when one of its nodes leaves. Together they keep to the
// limit of the wave.
func TestStepsOfARampKeepToOneLimit(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 9, "v1")
	w.start(policy(t, "waves: [{name: more, nodes: {}, ramp: {}, maxUnavailable: 2}]"), dsWith("v1", 2))
	w.update("v2")
	for range 100 {
		if strings.HasSuffix(w.course.Status().Step, "/3") {
			break
		}
		w.pass(time.Second)
	}
	var begun []string
	for _, p := range w.take(9) {
		begun = append(begun, p.Node)
	}
	if len(begun) != 2 {
		t.Fatalf("in %s the changes of %v begin, want two", w.course.Status().Step, begun)
	}
	for _, name := range w.names() {
		if w.nodes[name].daemon.Revision == "v2" {
			w.removeNode(name)
		}
	}
	for _, p := range w.take(9) {
		begun = append(begun, p.Node)
	}
	if len(begun) != 2 {
		t.Errorf("with a limit of 2 nodes %v are under way at once; %s", begun, w.course.Status().Message)
	}
}

// Nodes of a ramp on which the target fails, and which keep what they have, use up no limit. Nor do they make room for
// others in its next step, while nodes of theirs are under way.
func TestFailuresInARampMakeNoRoom(t *testing.T) {
	w := fetchingWorld(t, 12, "waves: [{name: more, nodes: {}, ramp: {from: 4}, maxUnavailable: 1, fetch: true}]\n"+
		"failure: {max: 100%, min: 9}")
	var first []string
	for _, name := range w.names() {
		if w.course.StepOf(name) == "more/1" {
			first = append(first, name)
		}
	}
	w.nodes[first[0]].fetches, w.nodes[first[1]].fetches = "missing", "missing"
	w.update("v2")
	for range 600 {
		if w.course.Status().Step == "more/2" {
			break
		}
		w.pass(time.Second)
	}
	w.pass(5 * time.Second) // the next step's nodes have the images
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	w.pass(5 * time.Second) // what is under way ends
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
	again := w.nodes[first[2]]
	again.daemon.Available = false
	again.unready()
	w.tell(first[2])
	if verdict, why := w.course.Verdict(first[2]); verdict != standing.Changing {
		t.Fatalf("%s is %s: %s", first[2], verdict, why)
	}
	if begun := w.take(9); len(begun) > 0 {
		t.Errorf("with a limit of 1, and %s under way, %+v begin; %s", first[2], begun, w.course.Status().Message)
	}
}

// atSecondOfRamp is a fleet that gets v2 by a ramp that changes one node at a time, and the first node of its second step,
// whose change has just begun.
func atSecondOfRamp(t *testing.T) (w *world, node string) {
	t.Helper()
	w = newWorld()
	w.addFleet(1, 1, 9, "v1")
	w.start(policy(t, "waves: [{name: more, nodes: {}, ramp: {}, maxUnavailable: 1}]"), dsWith("v1", 9))
	w.update("v2")
	for range 100 {
		if w.course.Status().Step == "more/2" {
			break
		}
		w.pass(time.Second)
	}
	begun := w.take(9)
	if step := w.course.Status().Step; len(begun) != 1 || step != "more/2" {
		t.Fatalf("in %s %v begin, want one", step, begun)
	}
	return w, begun[0].Node
}

// A node of a later step of a ramp may be under way to another revision, or without its daemon, when the steps begin
// again. It keeps its place within the limit of the wave until that is over.
func TestStepsOfARampThatBeginAgainKeepToOneLimit(t *testing.T) {
	for name, under := range map[string]func(*world, string){
		"no answer yet": func(w *world, node string) {
			w.nodes[node].daemon.Unsure = true
			w.tell(node)
		},
		"its daemon is gone": func(w *world, node string) { w.begin(Permit{Node: node, From: "v1", To: "v2"}) },
	} {
		w, late := atSecondOfRamp(t)
		under(w, late)
		w.update("v3")
		if more := w.take(9); len(more) > 0 {
			t.Errorf("%s: %v begin while %s is under way", name, more, late)
		}
		w.nodes[late].daemon = standing.Daemon{Revision: "v2", Available: true, Since: w.now, Made: w.now, Bound: w.now}
		w.tell(late)
		if more := w.take(9); len(more) != 1 || more[0].Node == late {
			t.Errorf("%s: when that is over %v begin, want the first node", name, more)
		}
	}
}

// Who uses up the limit of a ramp from a later step, and does not come up, is named. One that can have no daemon before
// its own step begins holds up none of those before it.
func TestALostDaemonInALaterStepOfARamp(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w, late := atSecondOfRamp(t)
		w.begin(Permit{Node: late, From: "v1", To: "v2"})
		w.bad = func(revision, node string) string {
			return map[bool]string{true: "it ends"}[revision == "v1" && node == late]
		}
		w.unreadable["v1"] = lost
		w.update("v3")
		w.pass(time.Hour)
		if lost {
			w.expect(t, v1alpha1.PhaseComplete, "9 of 9")
			continue
		}
		w.expect(t, v1alpha1.PhaseProgressing, "step more/1: 0 of 1 node done; the limit is used up, and is not freed by 1 node: "+late)
	}
}
