package course

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// What fails on some nodes, within the limit, holds up neither the other racks nor the
// next steps, and is never called complete.
func TestFailuresWithinTheLimitHoldUpNobody(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 4, 10, "v1")
	w.start(policy(t, fleetPolicy), daemonSet("v1"))
	broken := "z1-r2-05"
	w.bad = func(revision, node string) string {
		if revision == "v2" && node == broken {
			return "no such device"
		}
		return ""
	}
	w.update("v2")
	w.pass(30 * time.Minute)
	// Its rack is at its limit; whoever waits there keeps what it has.
	held := 0
	for _, name := range w.names() {
		if name[:5] == broken[:5] && w.nodes[name].daemon.Revision == "v1" {
			held++
		}
	}
	if n := w.on("v2"); n != 120-held || held == 0 {
		t.Fatalf("%d nodes have v2, %d of the rack wait", n, held)
	}
	w.expect(t, v1alpha1.PhaseProgressing, "within the limit, the revision fails on 1 node ("+broken+")")
	if s := w.course.Status(); s.StableRevision != "v1" || s.Counts["FailedRevision"] != 1 {
		t.Errorf("status %+v", s)
	}
	w.bad = func(string, string) string { return "" }
	m := w.nodes[broken]
	m.daemon.Available, m.daemon.Since, m.daemon.Restarts, m.daemon.Trouble = true, w.now, 0, ""
	w.tell(broken)
	w.pass(20 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "120 of 120 nodes have revision v2")
}

// What fails may use up what may be unavailable; then the message says so.
func TestFailuresThatUseUpTheLimitAreNamed(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 40, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone, maxUnavailable: 2}]\nfailure: {max: 50%, min: 10, restarts: 3}"), daemonSet("v1"))
	w.bad = func(revision, node string) string {
		if revision == "v2" && (node == "z0-r0-05" || node == "z0-r0-07") {
			return "no such device"
		}
		return ""
	}
	w.update("v2")
	w.pass(30 * time.Minute)
	w.expect(t, v1alpha1.PhaseProgressing, "step zones/z0: no more nodes may be unavailable while the revision fails on 2 nodes (z0-r0-05, z0-r0-07)")
	m := w.nodes["z0-r0-05"]
	m.daemon.Available, m.daemon.Since, m.daemon.Restarts, m.daemon.Trouble = true, w.now, 0, ""
	w.tell("z0-r0-05")
	w.pass(30 * time.Minute)
	w.expect(t, v1alpha1.PhaseProgressing, "the revision fails on 1 node (z0-r0-07)")
}

// A canary that works nowhere asks, whatever the limit is.
func TestCanaryThatFailsWithinTheLimitAsks(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 40, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1}]\nfailure: {max: 50%, min: 10, restarts: 3}"), daemonSet("v1"))
	w.bad = func(revision, _ string) string { return map[string]string{"v2": "no such device"}[revision] }
	w.update("v2")
	w.pass(30 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary has no node on which the revision works; it fails on 1 node (")
	if n := w.on("v2"); n != 1 {
		t.Errorf("%d nodes have v2", n)
	}
}

// A pod that never ends, say because of a finalizer, is its node's fault: it holds up no
// other node, and is named. What keeps more nodes than may be out of order from ending
// their pods stops the change.
func TestAPodThatNeverEndsHoldsUpNobody(t *testing.T) {
	for _, surge := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		ds := daemonSet("v1")
		ds.Surge = surge
		w.start(policy(t, "waves: [{name: zones, each: zone, maxUnavailable: 1}]\nfailure: {startDeadline: 1m}"), ds)
		w.update("v2")
		w.act(1)
		const stuck = "z0-r0-00"
		m := w.nodes[stuck]
		endsBy := w.now.Add(30 * time.Second)
		if surge {
			m.ready = time.Time{}
			m.daemon.Available, m.daemon.Since, m.daemon.Two = true, w.now, true
		} else {
			m.ready, m.daemon = time.Time{}, standing.Daemon{Ended: true, Ending: "v1",
				Trouble: "its old pod has not ended yet"}
		}
		m.daemon.EndsBy, m.daemon.Grace = endsBy, 30*time.Second
		w.tell(stuck)
		w.stuck = stuck
		w.pass(80 * time.Second)
		if n := w.on("v2"); n > 1 {
			t.Errorf("surge %v: %d nodes have v2 while the first may still end its pod", surge, n)
		}
		w.pass(3 * time.Minute)
		want := 9
		if surge {
			want = 10
		}
		if n := w.on("v2"); n != want {
			t.Errorf("surge %v: %d nodes have v2, want %d", surge, n, want)
		}
		if v, why := w.course.Verdict(stuck); !surge &&
			(v != standing.NodeFault || !strings.Contains(why,
				"its old pod was to end by 10:00:30 UTC, and is still there")) {
			t.Errorf("the node is %s: %s", v, why)
		}
	}
}

// A pod that nobody binds is not its node's fault: if the scheduler is away, all nodes
// would lose their daemons.
func TestAPodThatNobodyBindsHoldsTheStep(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "failure: {startDeadline: 1m}"), daemonSet("v1"))
	w.update("v2")
	w.act(1)
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == "v2" {
			m.ready, m.daemon.Bound = time.Time{}, time.Time{}
			w.tell(name)
		}
	}
	w.starts = 24 * time.Hour
	had := w.on("v2")
	w.pass(time.Hour)
	if n := w.on("v2"); had == 0 || n != had {
		t.Errorf("%d nodes have v2, want no more than %d", n, had)
	}
	w.expect(t, v1alpha1.PhaseProgressing, "its pod is not bound to it yet")
	for _, name := range w.names() {
		w.nodes[name].daemon.Gates = "everynode.io/first-node"
		w.tell(name)
	}
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseProgressing, "its pod waits behind a scheduling gate: everynode.io/first-node")
}

// The pod that is to start beside the old one is refused for a while. Its node still has the old one, so it
// uses up no limit: the others go on, and it is tried again. Once that has lasted, it is evidence.
func TestARefusedSuccessorHoldsUpNobody(t *testing.T) {
	for _, lasts := range []time.Duration{0, Lasting - time.Second, Lasting} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		ds := dsWith("v1", 1)
		ds.Surge = true
		w.start(policy(t, "failure: {max: 100%}"), ds)
		w.update("v2")
		refused := w.take(1)
		if len(refused) != 1 {
			t.Fatalf("%+v may begin, want one", refused)
		}
		name := refused[0].Node
		m := w.nodes[name]
		refuse := func() {
			m.daemon.Held, m.daemon.Refused, m.daemon.RefusedOf = true, "the webhook is away", "v2"
			m.ready = time.Time{}
			w.tell(name)
		}
		refuse()
		if v, why := w.course.Verdict(name); v != standing.Waiting || why != "the webhook is away; it is tried again" {
			t.Errorf("%s: %s, want it to be tried again", v, why)
		}
		w.act(10)
		if n := w.on("v2"); n != 1 || m.daemon.Revision != "v1" {
			t.Errorf("%d others have v2 while %s waits for its next try, want 1", n, name)
		}
		w.pass(lasts)
		m.daemon.Held = false // the pause is over
		w.tell(name)
		for len(w.take(1)) > 0 && w.course.nodes[name].change.begun == nil {
			w.pass(time.Second)
		}
		refuse()
		if v, why := w.course.Verdict(name); lasts >= Lasting &&
			(v != standing.FailedRevision || why != "the webhook is away") || lasts < Lasting && v != standing.Waiting {
			t.Errorf("refused for %s: %s: %s", lasts, v, why)
		}
		m.daemon.Held = false
		w.tell(name)
		w.pass(10 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "10 of 10")
	}
}

// A node that has the target is restarted in the middle of the rollout. It is heard of again before its pod
// is ready.
func TestARebootIsNoFailure(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3, soak: 1h}]\nfailure: {min: 1, startDeadline: 5m, then: Rollback}"), daemonSet("v1"))
	w.update("v2")
	w.pass(30 * time.Minute)
	name := ""
	for n, m := range w.nodes {
		if m.daemon.Revision == "v2" && m.daemon.Available {
			name = n
		}
	}
	w.fault(name, "the node does not answer", true)
	w.pass(3 * time.Minute)
	w.starts = 20 * time.Second
	w.fault(name, "", false)
	w.pass(2 * time.Minute)
	phase, message := w.course.Phase()
	if phase == v1alpha1.PhaseRolledBack {
		t.Errorf("%s: %s", phase, message)
	}
}

// A pod that has soaked long ago is not ready for a second.
func TestUnreadyForAMomentIsNotLate(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3, soak: 1m, approval: Manual}]\nfailure: {min: 1, startDeadline: 5m, then: Rollback}"), daemonSet("v1"))
	w.update("v2")
	w.pass(30 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "")
	for name, m := range w.nodes {
		if m.daemon.Revision == "v2" {
			since := m.daemon.Since
			m.daemon.Available, m.daemon.Since = false, time.Time{}
			w.course.SetDaemon(name, m.daemon)
			w.now = w.now.Add(time.Second)
			tick(w.course, w.now)
			m.daemon.Available, m.daemon.Since = true, since.Add(time.Hour)
			w.course.SetDaemon(name, m.daemon)
			break
		}
	}
	if phase, message := w.course.Phase(); phase == v1alpha1.PhaseRolledBack {
		t.Errorf("%s: %s", phase, message)
	}
}

// A pod becomes ready again and again, and never for as long as the soak: it gets no new time by falling.
func TestAPodThatNeverSoaksIsLate(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1, soak: 1m}]\nfailure: {min: 1, startDeadline: 5m, then: Rollback}"), daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Second)
	for name, m := range w.nodes {
		if m.daemon.Revision != "v2" {
			continue
		}
		for i := range 400 {
			m.daemon.Available, m.daemon.Since = i%4 == 0, time.Time{}
			if m.daemon.Available {
				m.daemon.Since = w.now
			}
			w.course.SetDaemon(name, m.daemon)
			w.now = w.now.Add(time.Second)
			tick(w.course, w.now)
		}
	}
	w.expect(t, v1alpha1.PhaseRolledBack, "not available in time")
}

// A deletion that got no answer may be done: until that is known it uses up the limit.
func TestAChangeWithoutAnAnswerUsesUpTheLimit(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 4, "v1")
	w.start(policy(t, ""), dsWith("v1", 1))
	w.update("v2")
	m := w.nodes["z0-r0-02"]
	m.daemon.Unsure = true
	w.tell("z0-r0-02")
	if got := w.take(10); len(got) > 0 {
		t.Errorf("%+v begins, and the pod of z0-r0-02 may be gone", got)
	}
	m.daemon.Unsure = false
	w.tell("z0-r0-02")
	if got := w.take(10); len(got) != 1 {
		t.Errorf("%+v begin, and nothing is under way; want one", got)
	}
}
