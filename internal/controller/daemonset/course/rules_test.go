package course

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

func TestApprovalIsForOneStepOfOneRevision(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}, {name: zones, each: zone, approval: Manual}]"), daemonSet("v1"))
	approve := func(revision, step string) {
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: revision,
			Step: step}})
		w.pass(time.Minute)
	}
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	approve("v1", "canary")
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary")
	approve("v2", "canary")
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step zones/z0 is complete")
	w.update("v3")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	approve("v3", v1alpha1.AllSteps)
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes have revision v3")
}

func TestWindowHoldsOnlyWhatIsNew(t *testing.T) {
	w := newWorld() // a Monday, 10:00 UTC
	w.starts = 20 * time.Second
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, `windows: [{days: [Mon], from: "09:00", to: "10:01"}]`), daemonSet("v1"))
	w.pass(50 * time.Second)
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseOutsideWindow, "the next window opens at Mon 2026-03-09 09:00 UTC")
	if n := w.on("v2"); n != 2 || w.on("v1") != 18 {
		t.Fatalf("%d nodes have v2, want the two that had begun", n)
	}
	at, ok := w.course.NextTick()
	if want := time.Date(2026, 3, 9, 9, 0, 0, 0, time.UTC); !ok || !at.Equal(want) {
		t.Fatalf("it wakes at %s, want %s", at, want)
	}
	w.now = at
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "v2")
}

func TestAbortAndWhatEndsIt(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 5, soak: 1h}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "revision v2 somebody aborted it")
	if n := w.on("v1"); n != 20 {
		t.Fatalf("%d nodes have v1", n)
	}
	w.again()
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "aborted")
	w.update("v3") // the template's next change; nobody has taken the abort back
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseSoaking, "step canary: 5 nodes soak")
	w.again() // another process has not seen that the abort was about v2
	w.expect(t, v1alpha1.PhaseSoaking, "step canary: 5 nodes soak")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v3"}})
	w.expect(t, v1alpha1.PhaseRolledBack, "revision v3")
}

// TestAbortOfWhatIsHalted takes back the nodes that a halt left as they were, once, also after a restart.
func TestAbortOfWhatIsHalted(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 2}]\nfailure: {then: Halt}"), daemonSet("v1"))
		w.bad = func(revision, _ string) string { return map[string]string{"v2": "it restarts"}[revision] }
		w.update("v2")
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseHalted, "it restarts")
		if w.on("v1") == 10 {
			t.Fatal("nothing was left to take back")
		}
		if restarted {
			w.again()
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseRolledBack, "it restarts")
		w.expect(t, v1alpha1.PhaseRolledBack, "somebody aborted it")
		if n := w.on("v1"); n != 10 {
			t.Fatalf("restarted %v: %d nodes have v1, want all", restarted, n)
		}
		w.again()
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseRolledBack, "somebody aborted it")

		w.bad = func(string, string) string { return "" }
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
		w.pass(5 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "v2")
	}
}

func TestFailedRevisionIsTriedAgainOncePerCount(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2}]\nfailure: {then: Rollback}"), daemonSet("v1"))
	w.bad = func(revision, _ string) string { return map[string]string{"v2": "it restarts"}[revision] }
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "it restarts")
	given := func() (n int) {
		for _, times := range w.given["v2"] {
			n += times
		}
		return n
	}
	before := given()
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "it restarts")
	again := given()
	if again <= before {
		t.Fatal("it was not tried again")
	}
	w.again()
	w.pass(time.Minute)
	if given() != again {
		t.Error("the same count was followed twice")
	}
	w.bad = func(string, string) string { return "" }
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 2}})
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "v2")
}

func TestSupersededRevisionStaysUntilItsStep(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 5, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone, soak: 10m}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(11 * time.Minute)
	w.pass(5 * time.Minute) // zone z1 has begun as well
	if n := w.on("v2"); n < 6 {
		t.Fatalf("only %d nodes have v2", n)
	}
	w.update("v3")
	w.pass(2 * time.Minute)
	if a, b, c := w.on("v1"), w.on("v2"), w.on("v3"); a != 0 || b != 5 || c != 5 {
		t.Fatalf("%d, %d, %d nodes have v1, v2, v3: zone z1 keeps v2 until its step", a, b, c)
	}
	lost := "z1-r0-02" // a pod that is lost meanwhile comes back stable
	w.nodes[lost].daemon = standing.Daemon{}
	w.course.SetDaemon(lost, w.nodes[lost].daemon)
	w.pass(time.Minute)
	if got := w.nodes[lost].daemon.Revision; got != "v1" {
		t.Errorf("it came back with %s", got)
	}
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "v3")
}

func TestNothingBeginsWithoutAPolicyThatCanBeFollowed(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "v1")
	w.start(policy(t, ""), daemonSet("v1"))
	w.update("v2")
	w.pass(3 * time.Second)
	w.course.SetPolicy(nil, Lost, "the watch of RolloutPolicies is lost")
	had := w.on("v1")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhasePaused, "the watch of RolloutPolicies is lost")
	if n := w.on("v1"); n != had || n == 0 {
		t.Fatalf("%d nodes have v1, %d had", n, had)
	}
	w.addNode("new", nil, "")
	w.pass(time.Minute)
	if r := w.nodes["new"].daemon.Revision; r == "" {
		t.Error("a new node got no daemon")
	}
	w.course.SetPolicy(nil, Followed, "")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "v2")
}

func TestCanaryThatIsNobodyAsks(t *testing.T) {
	for _, ramp := range []string{"", ", ramp: {}"} {
		w := newWorld()
		w.addFleet(1, 2, 10, "v1")
		w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {fleet: canari}}"+ramp+"}]"), daemonSet("v1"))
		w.update("v2")
		w.pass(10 * time.Minute)
		w.expect(t, v1alpha1.PhaseWaitingForApproval, "wave canary takes no node")
		if w.on("v2") != 0 {
			t.Fatal("the change went past a canary that does not exist")
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v2",
			Step: w.course.Status().Step}})
		w.pass(10 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "v2")
	}
}

func TestNewDaemonSetStopsAtTheLimitToo(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 5, 20, "")
	w.start(policy(t, "failure: {max: 5%, min: 3, then: Rollback}"), daemonSet("v1"))
	w.bad = func(string, string) string { return "it restarts" }
	for range 60 {
		w.now = w.now.Add(time.Second)
		tick(w.course, w.now)
		w.act(1) // at a pace of one node a second
	}
	w.expect(t, v1alpha1.PhaseHalted, "revision v1 failed on")
	if n := len(w.given["v1"]); n > 8 {
		t.Errorf("%d nodes were given it", n)
	}
}

func TestBadNodesAreNotTheRevisionsFault(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "v1")
	for _, name := range []string{"z0-r0-01", "z0-r0-02", "z0-r1-03"} {
		w.nodes[name].daemon.Available, w.nodes[name].daemon.Since = false, time.Time{}
		w.nodes[name].daemon.Trouble = "no such device"
		w.tell(name)
	}
	w.start(policy(t, "failure: {max: 0, then: Rollback, startDeadline: 1m}"), daemonSet("v1"))
	w.bad = func(_, node string) string {
		if strings.HasSuffix(node, "r0-01") || strings.HasSuffix(node, "r0-02") {
			return "no such device"
		}
		return ""
	}
	w.update("v2")
	w.pass(20 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "18 of 20 nodes have revision v2; 2 are out of order")
	if v, why := w.course.Verdict("z0-r0-01"); v != standing.NodeFault || why != "no such device" {
		t.Errorf("%s: %s", v, why)
	}
}

func TestEvidenceOutlivesPodsAndRestarts(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 10, 50, "v1")
	ds := daemonSet("v1")
	w.start(policy(t, "failure: {max: 60%}"), ds)
	w.bad = func(revision, node string) string {
		if revision == "v2" && node < "z0-r5" {
			return "it restarts"
		}
		return ""
	}
	w.update("v2")
	w.pass(10 * time.Minute)
	f := w.course.Status().Failures
	if f == nil || len(f.Nodes)+int(f.More) < 50 {
		t.Fatalf("the evidence is %+v", f)
	}
	failed := len(f.Nodes) + int(f.More)
	healed := w.nodes[f.Nodes[0]]
	healed.daemon.Available, healed.daemon.Since, healed.daemon.Restarts, healed.daemon.Trouble = true, w.now, 0, ""
	w.tell(f.Nodes[0]) // too late: the limit has been passed
	w.pass(time.Minute)
	w.again()
	w.again()
	f = w.course.Status().Failures
	if got := len(f.Nodes) + int(f.More); got != failed {
		t.Errorf("%d failures after a restart, %d before", got, failed)
	}
	for range 3 { // somebody deletes the pods that failed
		for _, name := range f.Nodes {
			w.nodes[name].daemon = standing.Daemon{}
			w.course.SetDaemon(name, w.nodes[name].daemon)
		}
	}
	w.bad = func(string, string) string { return "" }
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseHalted, "failed on")
	if f := w.course.Status().Failures; len(f.Nodes)+int(f.More) < failed {
		t.Errorf("deleting pods takes failures away: %d of %d", len(f.Nodes)+int(f.More), failed)
	}
}

func TestMoreFailuresThanNamesAreCounted(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 50, "v1")
	for i := range 300 {
		w.addNode(fmt.Sprintf("n%03d", i), nil, "v1")
	}
	w.start(policy(t, "failure: {max: 100%, min: 1000}\nwaves: [{name: rest-of-it, percent: 100, maxUnavailable: 100%}]"), daemonSet("v1"))
	w.bad = func(revision, node string) string { return map[string]string{"v2": "it restarts"}[revision] }
	w.update("v2")
	w.pass(time.Minute)
	for range 3 {
		if f := w.course.Status().Failures; len(f.Nodes) != 200 || f.More != 150 {
			t.Fatalf("%d names and %d more, want 200 and 150", len(f.Nodes), f.More)
		}
		w.again() // each time fewer names are known, and no failure is forgotten or counted twice
	}
	for _, name := range w.names()[:250] {
		m := w.nodes[name]
		m.daemon.Available, m.daemon.Since, m.daemon.Restarts, m.daemon.Trouble = true, w.now, 0, ""
		w.tell(name)
	}
	w.again()
	if f := w.course.Status().Failures; f == nil || len(f.Nodes)+int(f.More) != 350 {
		t.Errorf("a number without names shrank: %+v", f)
	}
}

func TestStepsOwnLimit(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 2, 10, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone, maxUnavailable: 3}]"), daemonSet("v1"))
	most := 0
	w.check = func(Permit) {
		down := 0
		for _, n := range w.course.nodes {
			down += one(n.view.Has(standing.Down))
		}
		most = max(most, down)
	}
	w.update("v2")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "v2")
	if most != 3 {
		t.Errorf("%d nodes were down at once, want 3", most)
	}
}

func TestNodeKeepsTheTargetWhenAnotherTakesItsPlace(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1, soak: 10h}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	for i := range 40 {
		w.addNode(fmt.Sprintf("new-%d", i), nil, "")
		w.pass(5 * time.Second)
	}
	if n := w.on("v2"); n < 2 {
		t.Fatalf("no new node became the canary: the test shows nothing")
	}
	for name, m := range w.nodes {
		if times := w.given["v2"][name]; times > 1 || times == 1 && m.daemon.Revision != "v2" {
			t.Errorf("%s was given v2 %d times, and has %s", name, times, m.daemon.Revision)
		}
	}
}

func TestFailedRevisionIsLeftBehindBeforeTheStepBegins(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone}]\nfailure: {max: 1}"), daemonSet("v1"))
	w.bad = func(revision, node string) string {
		if revision == "v2" && node >= "z1" {
			return "it restarts"
		}
		return ""
	}
	w.update("v2")
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseHalted, "failed on 2 of 12 nodes")
	w.course.SetPolicy(policy(t, "waves: [{name: zones, each: zone, soak: 1h}]"), Followed, "")
	w.update("v3")
	w.pass(5 * time.Minute)
	if a, b := w.on("v2"), w.on("v1"); a != 0 || b != 10 {
		t.Errorf("%d nodes have the failed revision, %d the stable one: zone z1 goes back at once", a, b)
	}
}

func TestTooManyNodesOutOfOrder(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "v1")
	w.start(policy(t, "nodeFaults: {max: 10%}"), daemonSet("v1"))
	for _, name := range []string{"z0-r0-01", "z0-r0-02", "z0-r0-03"} {
		w.fault(name, "disk pressure", false)
	}
	w.update("v2")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhasePaused, "nothing new begins: 3 of 20 nodes are out of order, more than 10%")
	if w.on("v2") != 0 {
		t.Error("something began")
	}
	w.fault("z0-r0-01", "", false)
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "18 of 20 nodes have revision v2; 2 are out of order")
}

func TestCompleteIsNotBeforeTheLastNode(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, ""), daemonSet("v1"))
	w.update("v2")
	for w.on("v2") < 10 {
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseProgressing {
			t.Fatalf("%s: %s with %d nodes changed", phase, message, w.on("v2"))
		}
		w.pass(time.Second)
	}
	w.expect(t, v1alpha1.PhaseProgressing, "") // the last one is not available yet
	w.pass(5 * time.Second)
	w.expect(t, v1alpha1.PhaseComplete, "v2")
}

func TestNodeThatWasSilentBeforeIsNoEvidence(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Second)
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == "v2" { // bound to a node of which nobody had heard
			m.fault, m.silent, m.since = "node does not answer", true, w.now.Add(-5*time.Minute)
			w.tell(name)
		}
	}
	w.pass(time.Minute)
	if phase, message := w.course.Phase(); phase == v1alpha1.PhaseHalted {
		t.Errorf("%s: %s", phase, message)
	}
}

func TestManyStepsAreNamedInOrder(t *testing.T) {
	w := newWorld()
	w.addFleet(12, 1, 1, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone}]"), daemonSet("v1"))
	var names []string
	for _, s := range w.course.Status().Steps {
		names = append(names, s.Name)
	}
	if got := fmt.Sprint(names); !strings.HasPrefix(got, "[zones/z0 zones/z1 zones/z10 zones/z11 zones/z2") {
		t.Error(got)
	}
}

// A revision that fills the disk, or takes the network away, puts nodes out of order that
// still answer. On some nodes it works; that must not carry it through the fleet.
func TestNodesThatFallOutOfOrderAfterTheirChange(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 100, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 4, soak: 1m}]\nfailure: {min: 2}"), daemonSet("v1"))
	w.update("v2")
	works := ""
	for range 600 {
		w.pass(time.Second)
		for _, name := range w.names() {
			if m := w.nodes[name]; m.daemon.Revision == "v2" && works == "" {
				works = name
			} else if name != works && m.daemon.Revision == "v2" && m.daemon.Available &&
				w.now.Sub(m.daemon.Bound) > 5*time.Second {
				w.fault(name, "the node is not ready: NetworkPluginNotReady", false)
			}
		}
	}
	if phase, message := w.course.Phase(); phase != v1alpha1.PhaseHalted && phase != v1alpha1.PhaseWaitingForApproval ||
		w.on("v2") > 4 {
		t.Errorf("%d nodes have v2; %s: %s", w.on("v2"), phase, message)
	}
}

// The nodes of a wave that asks go away while it is under way, also when another process goes on.
func TestAStepWhoseNodesLeaveStillAsks(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 5, "v1")
	for i, name := range w.names() {
		if i < 2 {
			w.nodes[name].labels["pilot"] = "yes"
			w.tell(name)
		}
	}
	p := policy(t, "waves: [{name: canary, count: 1}, {name: pilot, nodes: {matchLabels: {pilot: \"yes\"}}, soak: 1h, approval: Manual}]")
	w.start(p, daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	if s := w.course.Status().Step; s != "pilot" {
		t.Fatalf("step %s", s)
	}
	for _, name := range append([]string(nil), w.names()...) {
		if w.nodes[name].labels["pilot"] == "yes" {
			w.removeNode(name)
		}
	}
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step pilot has no node any more")
	w.again()
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step pilot has no node any more")
	if w.on("v2") > 3 {
		t.Errorf("%d nodes have v2, and nobody approved wave pilot", w.on("v2"))
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v2", Step: "pilot"}})
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "v2")
}

// A step of a wave with each waits for approval, and its nodes leave.
func TestAZoneWhoseNodesLeaveStillAsks(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 1, 4, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone, approval: Manual}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "zones/z0")
	for _, name := range append([]string(nil), w.names()...) {
		if w.nodes[name].labels["zone"] == "z0" {
			w.removeNode(name)
		}
	}
	w.pass(10 * time.Minute)
	if w.on("v2") > 0 {
		phase, message := w.course.Phase()
		t.Errorf("%d nodes of other zones have v2, and nobody approved zones/z0; %s: %s", w.on("v2"), phase, message)
	}
}
