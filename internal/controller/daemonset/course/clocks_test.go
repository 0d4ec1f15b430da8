package course

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/loop/clocktest"
)

// offs is by how much the API's clock may be another than the controller's.
var offs = []time.Duration{0, -time.Hour, time.Hour}

// A revision that kills its nodes is found out whatever the API's clock says, and so is one that fills their disks,
// whose time is that of the node's clock.
func TestNodesThatFallAreSuspiciousByAnyClock(t *testing.T) {
	for _, off := range offs {
		for _, silent := range []bool{true, false} {
			w := newWorld()
			w.addFleet(1, 1, 100, "v1")
			w.start(policy(t, "waves: [{name: canary, count: 10, maxUnavailable: 10, soak: 5m}]\n"+
				"failure: {max: 5%, min: 2, startDeadline: 1m, then: Rollback}"), dsWith("v1", 1))
			w.pass(20 * time.Minute)
			w.update("v2")
			w.pass(30 * time.Second)
			fallen := 0
			for _, name := range w.names() {
				m := w.nodes[name]
				if m.daemon.Revision != "v2" {
					continue
				}
				if silent { // else the pod was bound by a clock that is right
					m.daemon.Bound, m.daemon.Made = m.daemon.Bound.Add(off), m.daemon.Made.Add(off)
					w.tell(name)
				}
				if fallen < 2 {
					fallen++
					m.fault, m.silent, m.since = "it is ill", silent, w.now.Add(off)
					m.daemon.Available, m.daemon.Since = false, time.Time{}
					w.tell(name)
				}
			}
			w.pass(time.Minute)
			phase, message := w.course.Phase()
			if phase != v1alpha1.PhaseRolledBack || !strings.Contains(message, "2 of 10 changed nodes") {
				t.Errorf("silent %t, the other clock is off by %s: %s: %s", silent, off, phase, message)
			}
		}
	}
}

// So is a content, or an amount of memory, that is given to pods that run. When that was is by the controller's clock.
func TestNodesThatFallByWhatRunningPodsGetAreSuspicious(t *testing.T) {
	for _, off := range offs {
		w := newWorld()
		w.addFleet(1, 1, 100, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 10, maxUnavailable: 10, soak: 5m}]\n"+
			"failure: {max: 5%, min: 2, startDeadline: 1m, then: Rollback}"), dsWith("v1", 1))
		w.pass(20 * time.Minute)
		w.update("v2")
		w.pass(30 * time.Second)
		fallen := 0
		for _, name := range w.names() {
			m := w.nodes[name]
			if m.daemon.Revision != "v2" {
				continue
			}
			m.daemon.Given = true
			w.tell(name)
			if fallen < 2 {
				fallen++
				m.fault, m.silent, m.since = "it is ill", true, w.now.Add(off)
				m.daemon.Available, m.daemon.Since = false, time.Time{}
				w.tell(name)
			}
		}
		w.pass(time.Minute)
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
			t.Errorf("the API's clock is off by %s: %s: %s", off, phase, message)
		}
	}
}

// A pod that is on its way out uses up the limit, by whatever clock it was to be gone long ago.
func TestGoingPodsUseUpTheLimitByAnyClock(t *testing.T) {
	for _, off := range offs {
		for _, grace := range []time.Duration{30 * time.Second, 20 * time.Minute} {
			w := newWorld()
			w.addFleet(1, 1, 10, "v1")
			w.start(policy(t, "failure: {startDeadline: 5m}"), dsWith("v1", 1))
			w.update("v2")
			for end := w.now.Add(grace + 4*time.Minute); w.now.Before(end); {
				w.now = w.now.Add(time.Second)
				tick(w.course, w.now)
				for _, p := range w.take(10) {
					m := w.nodes[p.Node]
					m.daemon = standing.Daemon{Ended: true, Ending: p.From, EndsBy: w.now.Add(off + grace),
						Grace: grace}
					w.course.SetDaemon(p.Node, m.daemon)
				}
			}
			if n := w.downNodes(); n != 1 {
				t.Errorf("the API's clock is off by %s, pods end in %s: %d nodes are without a daemon, 1 may be", off,
					grace, n)
			}
		}
	}
}

// A pod that is on its way out when a controller starts uses up the limit too, though it was to be gone long ago by the
// clock of that controller.
func TestGoingPodsUseUpTheLimitAfterARestartByAnyClock(t *testing.T) {
	for _, off := range offs {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "failure: {startDeadline: 5m}"), dsWith("v1", 1))
		w.update("v2")
		for _, p := range w.take(10) {
			w.nodes[p.Node].daemon = standing.Daemon{Ended: true, Ending: p.From,
				EndsBy: w.now.Add(off + 30*time.Second)}
			w.course.SetDaemon(p.Node, w.nodes[p.Node].daemon)
		}
		w.crash()
		w.now = w.now.Add(4 * time.Minute)
		tick(w.course, w.now)
		if n := len(w.take(10)); n != 0 {
			t.Errorf("the API's clock is off by %s: %d more are taken, and one is on its way out", off, n)
		}
	}
}

// What pods did before a retry is no evidence, by whatever clock they were made.
func TestARetryOverlooksWhatWasBeforeByAnyClock(t *testing.T) {
	for _, off := range offs {
		w := newWorld()
		w.addFleet(1, 1, 20, "v1")
		w.start(policy(t, "failure: {max: 5%, min: 2}"), dsWith("v1", 5))
		w.bad = func(revision, _ string) string { return map[string]string{"v2": "it crashes"}[revision] }
		w.update("v2")
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseHalted, "it crashes")
		for _, name := range w.names() {
			if m := w.nodes[name]; m.daemon.Revision == "v2" {
				m.daemon.Made, m.daemon.Bound = m.daemon.Made.Add(off), m.daemon.Bound.Add(off)
				w.tell(name)
			}
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseProgressing {
			t.Errorf("the API's clock is off by %s: %s: %s", off, phase, message)
		}
	}
}

// A node that nobody had heard of before it was given the target says nothing of that, whatever is heard later.
func TestAFaultFromBeforeThePodIsNoEvidence(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Second)
	w.crash() // the process that looks at it has not seen the pods being bound
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == "v2" {
			m.fault, m.since = "disk pressure", w.now.Add(-5*time.Minute)
			w.tell(name)
		}
	}
	w.pass(time.Minute)
	if phase, message := w.course.Phase(); phase == v1alpha1.PhaseHalted {
		t.Errorf("%s: %s", phase, message)
	}
}

// another has a process go on whose clock is off by so much from now on. It takes no pod to be ready later than it
// was seen.
func (w *world) another(off time.Duration) {
	w.now = w.now.Add(off)
	for _, m := range w.nodes {
		if m.daemon.Since.After(w.now) {
			m.daemon.Since = w.now
		}
		if !m.ready.IsZero() {
			m.ready = m.ready.Add(off)
		}
	}
	w.crash()
}

// A soak is neither shorter nor much longer where processes go on whose clocks are off, also when one follows another.
// What was soaking when the last one wrote the status goes on from there; a pod that came later soaks from then.
func TestSoaksLastByAnyClock(t *testing.T) {
	for _, departs := range []bool{false, true} {
		for _, off := range offs {
			w := newWorld()
			w.addFleet(1, 1, 10, "v1")
			w.start(policy(t, "waves: [{name: canary, count: 2, soak: 30m, maxUnavailable: 2}]"), dsWith("v1", 5))
			w.pass(time.Minute)
			if departs {
				w.rules["v2"] = func(node string) bool { return node != "z0-r0-04" } // one of the canary's
			}
			w.update("v2")
			soaked := time.Duration(0)
			for _, clock := range []time.Duration{off, -off, off} {
				w.passIn(10*time.Second, 7*time.Minute)
				soaked += 7 * time.Minute
				w.another(clock)
			}
			for w.on("v2") <= 2 && soaked < 3*time.Hour {
				w.pass(10 * time.Second)
				soaked += 10 * time.Second
			}
			if soaked < 30*time.Minute || soaked > 40*time.Minute {
				t.Errorf("a daemon leaves: %t, clocks are off by %s: the next step began after %s", departs, off, soaked)
			}
		}
	}
}

// Nodes that a revision kills while no process watches are found out by the next one, whatever its clock says, also
// where no node is left that was not given it.
func TestKillsAreFoundAfterARestartByAnyClock(t *testing.T) {
	for _, canary := range []int{10, 100} {
		for _, off := range offs {
			w := newWorld()
			w.addFleet(1, 1, 100, "v1")
			w.start(policy(t, fmt.Sprintf("waves: [{name: canary, count: %d, maxUnavailable: 100, soak: 30m}]\n"+
				"failure: {max: 5%%, min: 2, startDeadline: 1m, then: Rollback}", canary)), dsWith("v1", 1))
			w.pass(20 * time.Minute)
			w.update("v2")
			w.pass(30 * time.Second)
			fallen := 0
			for _, name := range w.names() {
				if m := w.nodes[name]; m.daemon.Revision == "v2" && fallen < 6 {
					fallen++
					m.fault, m.silent, m.since = "it is silent", true, w.now
					m.daemon.Available, m.daemon.Since = false, time.Time{}
				}
			}
			w.another(off)
			w.pass(2 * time.Minute)
			phase, message := w.course.Phase()
			if want := fmt.Sprintf("6 of %d changed nodes", canary); phase != v1alpha1.PhaseRolledBack ||
				!strings.Contains(message, want) {
				t.Errorf("%d nodes have it, the clock is off by %s: %s: %s", canary, off, phase, message)
			}
		}
	}
}

// fall has some of the nodes that have v2 stop answering, by the API's clock, which is off.
func (w *world) fall(some int, off time.Duration) {
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == "v2" && m.fault == "" && some > 0 {
			some--
			m.fault, m.silent, m.since = "it is silent", true, w.now.Add(off)
			m.daemon.Available, m.daemon.Since = false, time.Time{}
			w.tell(name)
		}
	}
}

// What fell before the target was tried again says nothing after a restart either, and what fell later does, whatever
// the clock was of the process that tried it again.
func TestARetryTellsEarlierFromLaterAfterARestartByAnyClock(t *testing.T) {
	for _, killed := range []int{0, 6} {
		for _, off := range append(offs, 0) {
			w := newWorld()
			w.addFleet(1, 1, 100, "v1")
			w.start(policy(t, "waves: [{name: canary, count: 20, maxUnavailable: 20, soak: 30m}]\n"+
				"failure: {max: 5%, min: 2, startDeadline: 1m}"), dsWith("v1", 1))
			w.pass(20 * time.Minute)
			w.update("v2")
			w.pass(30 * time.Second)
			w.fall(4, 0)
			w.pass(2 * time.Minute)
			w.expect(t, v1alpha1.PhaseHalted, "of 20 changed nodes")
			w.another(off)
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
			w.pass(2 * time.Second)
			if n := w.on("v2"); n != 20 {
				t.Errorf("a retry by a clock that is off by %s gives it to %d nodes, and the canary of 20 has to soak", off, n)
			}
			w.fall(killed, -off)
			w.another(-off)
			w.pass(2 * time.Minute)
			if phase, message := w.course.Phase(); (phase == v1alpha1.PhaseHalted) != (killed > 0) {
				t.Errorf("%d nodes fall after the retry, whose clock is off by %s: %s: %s", killed, off, phase, message)
			}
		}
	}
}

// A pod that is on its way out uses up the limit also when somebody sets the clock on the wall forward.
func TestGoingPodsUseUpTheLimitWhenTheClockIsSet(t *testing.T) {
	w := newWorld()
	noon := w.now
	w.now = clocktest.At(noon, time.Minute)
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "failure: {startDeadline: 5m}\nnodeFaults: {max: 100%}"), dsWith("v1", 1))
	w.update("v2")
	for _, p := range w.take(10) {
		w.course.SetDaemon(p.Node, standing.Daemon{Ended: true, Ending: p.From, EndsBy: noon.Add(31 * time.Second),
			Grace: 30 * time.Second, Was: standing.WasAvailable})
	}
	tick(w.course, clocktest.At(noon.Add(time.Hour), 2*time.Minute))
	if n := len(w.take(10)); n != 0 {
		t.Errorf("%d more are taken a minute later, and one is on its way out", n)
	}
}

// A pod from before a retry has the time of a start, also when somebody sets the clock on the wall forward.
func TestARetryGivesTimeWhenTheClockIsSet(t *testing.T) {
	w := newWorld()
	noon := w.now
	w.now = clocktest.At(noon, time.Minute)
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "failure: {startDeadline: 5m}"), dsWith("v1", 1))
	w.bad = func(revision, _ string) string { return map[string]string{"v2": hangs}[revision] }
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseHalted, "5 restarts")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	tick(w.course, clocktest.At(noon.Add(time.Hour), 3*time.Minute))
	w.expect(t, v1alpha1.PhaseProgressing, "its daemon starts")
}
