package course

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

func (w *world) downNodes() (n int) {
	for _, m := range w.nodes {
		if !m.daemon.Available {
			n++
		}
	}
	return n
}

// dsWith is a DaemonSet with a limit of nodes.
func dsWith(newest string, max int) DaemonSet {
	return DaemonSet{Set: placement.Set{Newest: newest}, MaxUnavailable: rolloutpolicy.LimitOf(intstr.FromInt(max))}
}

// The image of the stable revision is gone. A rollback takes no more working daemons away than may
// be unavailable, and says what holds it up.
func TestRollbackToWhatDoesNotStartStopsAtTheLimit(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 40, "v1")
	w.start(policy(t, "failure: {max: 5%, min: 3, startDeadline: 1m, restarts: 3, then: Rollback}"), dsWith("v1", 5))
	fails := map[string]bool{}
	w.bad = func(revision, node string) string {
		switch {
		case revision == "v1":
			return "image v1 cannot be pulled"
		case fails[node]:
			return "crashes"
		}
		return ""
	}
	for _, n := range w.names()[30:33] {
		fails[n] = true
	}
	w.update("v2")
	for i := range 400 {
		w.pass(time.Second)
		if w.downNodes() > 5+3 { // maxUnavailable, and those that failed
			w.pass(5 * time.Minute)
			p, m := w.course.Phase()
			t.Fatalf("after %d s: %d nodes without an available daemon, maxUnavailable is 5; v2 is on %d; %s %s", i, w.downNodes(), w.on("v2"), p, m)
		}
	}
	w.expect(t, v1alpha1.PhaseRolledBack, "the limit is used up, and is not freed by 5 nodes, such as")
	w.again() // another process knows as much
	w.pass(10 * time.Minute)
	if w.downNodes() > 5+3 {
		t.Errorf("after a restart %d nodes are without an available daemon", w.downNodes())
	}
}

// A rack that was dead comes back with old daemons that work, and the stable revision does not start
// there.
func TestReturnToWhatDoesNotStartStopsAtTheLimit(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 4, 10, "v1")
	w.start(policy(t, "failure: {max: 5%, min: 2, startDeadline: 1m, restarts: 3, then: Rollback}\nnodeFaults: {max: 50%}"), dsWith("v1", 1))
	for _, n := range w.names() {
		if w.nodes[n].labels["rack"] == "z0-r3" {
			w.fault(n, "node does not answer", true)
		}
	}
	w.pass(time.Hour)
	w.update("v2")
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "30 of 40")
	w.bad = func(revision, node string) string {
		if revision == "v2" && w.nodes[node].labels["rack"] == "z0-r3" {
			return "wrong hardware"
		}
		return ""
	}
	for _, n := range w.names() {
		w.fault(n, "", false)
	}
	most := 0
	for range 1800 {
		w.pass(time.Second)
		most = max(most, w.downNodes())
	}
	if w.downNodes() > 1 {
		t.Fatalf("%d nodes lost a working daemon, maxUnavailable is 1", w.downNodes())
	}
}

// A revision kills some of its nodes: the others go back.
func TestRollbackPassesDeadNodesBy(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 100, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 10, maxUnavailable: 10, soak: 5m}]\nfailure: {max: 5%, min: 2, startDeadline: 1m, then: Rollback}"), dsWith("v1", 1))
	w.pass(20 * time.Minute)
	w.update("v2")
	w.pass(30 * time.Second)
	killed := 0
	for _, n := range w.names() {
		if m := w.nodes[n]; m.daemon.Revision == "v2" && m.daemon.Available && killed < 2 {
			w.fault(n, "node does not answer", true)
			killed++
		}
	}
	w.pass(2 * time.Hour)
	p, m := w.course.Phase()
	t.Logf("killed %d; on v2 %d; %s %s counts %v", killed, w.on("v2"), p, m, w.course.Status().Counts)
	if w.on("v2") > killed {
		t.Fatalf("%d healthy nodes still run the revision that kills nodes, two hours after the rollback", w.on("v2")-killed)
	}
}

// A revision breaks some of its nodes for good: the others go back.
func TestRollbackPassesBrokenNodesBy(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 100, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 10, maxUnavailable: 10, soak: 5m}]\nfailure: {max: 5%, min: 2, startDeadline: 1m, then: Rollback}"), dsWith("v1", 1))
	broken := map[string]bool{}
	w.bad = func(revision, node string) string {
		if broken[node] {
			return "disk full"
		}
		if revision == "v2" && len(broken) < 2 {
			broken[node] = true
			return "disk full"
		}
		return ""
	}
	w.update("v2")
	w.pass(2 * time.Hour)
	p, m := w.course.Phase()
	t.Logf("broken %v on v2 %d; %s %s counts %v", broken, w.on("v2"), p, m, w.course.Status().Counts)
	if w.on("v2") > 0 {
		t.Fatalf("%d nodes still run v2 two hours after the rollback", w.on("v2"))
	}
}

// The stable ControllerRevision is gone: nothing goes back to it, and the rollout says so.
func TestNothingGoesBackToWhatCannotBeRead(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 4, soak: 1h}]\nfailure: {min: 1, then: Rollback}"), dsWith("v1", 1))
	w.update("v2")
	w.pass(time.Minute)
	w.unreadable["v1"] = true
	w.tellRules()
	fails := w.names()[0]
	for _, n := range w.names() {
		if w.nodes[n].daemon.Revision == "v2" {
			fails = n
		}
	}
	m := w.nodes[fails]
	m.daemon.Available, m.daemon.Since, m.daemon.Restarts = false, time.Time{}, 9
	w.tell(fails)
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhasePaused, "nothing goes back to revision v1: its ControllerRevision is gone or cannot be read; revision v2 failed")
	if n := w.on("v2"); n != 4 {
		t.Errorf("%d nodes have v2", n)
	}
	delete(w.unreadable, "v1")
	w.tellRules()
	w.pass(time.Minute)
	if n := w.on("v1"); n != 10 {
		t.Errorf("%d nodes have v1 when it can be read again", n)
	}
}

// What waiting may end must last before it counts, and a thing that passes leaves no evidence.
func TestTroubleThatPassesIsNoFailure(t *testing.T) {
	for _, lasts := range []time.Duration{Lasting - time.Second, Lasting + time.Second} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "failure: {min: 1, then: Rollback}"), daemonSet("v1"))
		w.starts = 2 * time.Minute
		w.update("v2")
		w.act(1)
		name := w.names()[0]
		m := w.nodes[name]
		m.daemon.Trouble, m.daemon.Certain = "no such ConfigMap", true
		w.tell(name)
		w.pass(lasts)
		m.daemon.Trouble, m.daemon.Certain = "", false
		w.tell(name)
		if phase, message := w.course.Phase(); (phase == v1alpha1.PhaseRolledBack) != (lasts > Lasting) {
			t.Errorf("after %s it is %s: %s", lasts, phase, message)
		}
	}
}

// The API's clock and those of nodes may be an hour off, either way: a start has its time, and a soak
// takes as long as it is to take.
func TestClocksThatAreOff(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		w := newWorld()
		w.addFleet(1, 1, 4, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 1, soak: 10m}]\nfailure: {min: 1, startDeadline: 5m}"), daemonSet("v1"))
		w.starts = 4 * time.Minute
		w.update("v2")
		w.act(1)
		var m *machine
		for _, name := range w.names() {
			if w.nodes[name].daemon.Revision == "v2" {
				m = w.nodes[name]
				m.daemon.Bound, m.daemon.Made = m.daemon.Bound.Add(off), m.daemon.Made.Add(off)
				w.tell(name)
				w.pass(3 * time.Minute)
				w.expect(t, v1alpha1.PhaseProgressing, "its daemon starts")
				m.ready = time.Time{}
				m.daemon.Available, m.daemon.Since = true, w.now.Add(min(off, 0))
				w.tell(name)
				w.pass(9 * time.Minute)
				w.expect(t, v1alpha1.PhaseSoaking, "step canary: 1 node soaks")
				w.pass(2 * time.Minute)
				w.expect(t, v1alpha1.PhaseProgressing, "step rest")
			}
		}
		if m == nil {
			t.Fatal("no node has v2")
		}
	}
}

// An abort is about the revision that it names: it is not heard again for a later one, whatever
// somebody writes while no controller runs.
func TestAbortIsOfOneRevision(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 5, soak: 1h}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(time.Minute)
	w.update("v3")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseSoaking, "step canary: 5 nodes soak")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}, Paused: true})
	w.again()
	w.pass(time.Minute)
	if phase, message := w.course.Phase(); phase == v1alpha1.PhaseRolledBack || w.on("v3") != 5 {
		t.Errorf("%s: %s; %d nodes have v3", phase, message, w.on("v3"))
	}
}

// What others say may have any length: the status says as much of it as a condition takes.
func TestWordsOfOthersAreCut(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 4, "v1")
	w.start(policy(t, "failure: {min: 1}"), daemonSet("v1"))
	w.starts = time.Hour
	w.update("v2")
	w.act(1)
	name := w.names()[0]
	m := w.nodes[name]
	m.daemon.Restarts, m.daemon.Trouble = 9, strings.Repeat("ä", 100_000)
	w.tell(name)
	s := w.course.Status()
	if s.Phase != v1alpha1.PhaseHalted || len(s.Message) > 4096 || len(s.FailedRevisions[0].Why) > 4096 || !strings.HasSuffix(s.Message, "ä…") {
		t.Errorf("%s with %d bytes, and the evidence has %d", s.Phase, len(s.Message), len(s.FailedRevisions[0].Why))
	}
}

// The stable revision does not start any more. Whoever aborts, tries again and aborts loses no more working
// daemons than whoever aborts once.
func TestRetryAndAbortTakeNoMoreThanTheLimit(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	ds := daemonSet("v1") // 10% of 10
	w.start(policy(t, "waves: [{name: canary, count: 1}, {name: all, percent: 100, soak: 24h}]\nfailure: {then: Rollback, min: 3, max: 50%}"), ds)
	w.update("v2")
	w.pass(10 * time.Minute)
	stable, target := w.course.state.stable, w.course.state.target
	w.bad = func(revision, _ string) string { return map[string]string{stable: "its image is gone"}[revision] }
	working := func() (n int) {
		for _, m := range w.nodes {
			n += one(m.daemon.Available)
		}
		return n
	}
	t.Logf("stable %s target %s, on target %d, working %d", stable, target, w.on(target), working())
	for i := range 6 {
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: target}})
		w.pass(20 * time.Second)
		_, message := w.course.Phase()
		t.Logf("abort %d: %d work: %s", i, working(), message)
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: target, Count: int32(i + 1)}, Paused: true})
		w.pass(time.Second)
	}
	if working() < 9 {
		t.Errorf("%d of 10 daemons work; at most 1 may be unavailable", working())
	}
}

// A pod that is being given other content shows nothing of it until it has. A change of direction in between does not
// forget that its daemon was taken.
func TestAPodThatIsBeingPointedCountsAfterATurn(t *testing.T) {
	for _, answered := range []bool{false, true} { // or nobody knows whether it was done, and it is tried again later
		w := newWorld()
		w.addNode("first", map[string]string{"pool": "canary"}, "v1")
		w.addNode("other", nil, "v1")
		w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {pool: canary}}}]"), dsWith("v1", 1))
		w.update("v2")
		for w.nodes["first"].daemon.Revision != "v2" || !w.nodes["first"].daemon.Available {
			w.pass(time.Second)
		}
		if p := w.take(1); len(p) != 1 || p[0].Node != "other" {
			t.Fatalf("%+v begins, not other", p)
		}
		d := w.course.nodes["other"].daemon
		d.Unsure, d.Held, d.Available = true, !answered, answered
		if !answered {
			d.Since = time.Time{}
		}
		w.course.SetDaemon("other", d)
		w.update("v3")
		d.Revision, d.Made, d.Available, d.Since, d.Unsure, d.Held = "v2", w.now, false, time.Time{}, false, false
		w.course.SetDaemon("other", d)
		for _, p := range w.take(2) {
			if p.Node == "first" {
				t.Errorf("answered %v: %+v begins beside the other, whose daemon was taken", answered, p)
			}
		}
	}
}
