package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

func (w *world) working() (n int) {
	for _, m := range w.nodes {
		n += one(m.daemon.Available)
	}
	return n
}

// TestComingBackOutlivesARestart: all nodes come back from a power cut, and the controller starts again a moment
// later. Daemons that are about to become available by themselves are not taken, and the target is blamed.
func TestComingBackOutlivesARestart(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 4, 10, "v1")
		w.start(policy(t, "domains: [{key: rack, maxUnavailable: 1}]\nfailure: {then: Rollback}"), daemonSet("v1"))
		w.bad = func(revision, _ string) string { return map[string]string{"v2": "it crashes"}[revision] }
		w.starts = 20 * time.Second
		for _, name := range w.names() {
			w.fault(name, "the node does not answer", true)
		}
		w.pass(time.Hour)
		w.update("v2")
		w.pass(time.Minute)
		for _, name := range w.names() {
			w.fault(name, "", false)
		}
		if restart {
			w.crash()
		}
		w.pass(time.Second)
		if n := len(w.given["v2"]); n > 4 {
			t.Errorf("restart %t: %d of 40 nodes lost their daemon in one second, 4 may", restart, n)
		}
		w.pass(10 * time.Minute)
		w.expect(t, v1alpha1.PhaseRolledBack, "it crashes")
		if w.working() != 40 {
			t.Errorf("restart %t: %d of 40 work", restart, w.working())
		}
	}
}

// TestUndoOfAPausedStepSparesNobodyTwice: a step is paused in its middle, taken back, and replaced by another
// revision. What the first has taken and not brought back uses up the limit still.
func TestUndoOfAPausedStepSparesNobodyTwice(t *testing.T) {
	for _, paused := range []bool{true, false} {
		w := newWorld()
		w.addFleet(1, 1, 100, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 20}]"), daemonSet("v1")) // 10%
		w.starts = 30 * time.Second
		w.update("v2")
		for w.course.Status().Step != "rest" || w.working() > 90 {
			w.pass(time.Second)
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: paused})
		w.update("v1")
		w.update("v3")
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
		worst := 100
		for range 60 {
			w.pass(time.Second)
			worst = min(worst, w.working())
		}
		if worst < 90 {
			t.Errorf("paused %t: only %d of 100 work; 10 may be unavailable", paused, worst)
		}
	}
}

// TestRefusedDepartureHoldsUpNobody: the API refuses for ever to delete the pod of a node that is to lose its daemon.
func TestRefusedDepartureHoldsUpNobody(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2}]\nfailure: {startDeadline: 1m}"), daemonSet("v1"))
	refused := w.names()[0]
	for _, name := range w.names() {
		if w.course.StepOf(name) == "canary" {
			refused = name
		}
	}
	w.rules["v2"] = func(node string) bool { return node != refused }
	w.update("v2")
	for range 1800 {
		w.now = w.now.Add(time.Second)
		tick(w.course, w.now)
		m := w.nodes[refused]
		for _, p := range w.take(100) {
			if p.Node == refused {
				m.daemon.Held = true
			} else {
				w.nodes[p.Node].daemon = standing.Daemon{}
			}
			w.course.SetDaemon(p.Node, w.nodes[p.Node].daemon)
		}
		if w.now.Second()%30 == 0 {
			m.daemon.Held = false // it is tried again
			w.course.SetDaemon(refused, m.daemon)
		}
		w.act(0)
	}
	_, why := w.course.Verdict(refused)
	if w.on("v2") != 19 {
		_, message := w.course.Phase()
		t.Errorf("%d of 19 have v2: %s; %s: %s", w.on("v2"), message, refused, why)
	}
}

// TestRefusedPodThatNobodyTookHoldsUpNobody: somebody deletes the pod of a node in a step that has begun, and the API
// refuses the next one there for ever.
func TestRefusedPodThatNobodyTookHoldsUpNobody(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: zones, each: zone, soak: 1m}]\nfailure: {startDeadline: 1m, max: 20%, min: 3}"),
		daemonSet("v1"))
	w.update("v2")
	for w.on("v2") < 5 {
		w.pass(time.Second)
	}
	ill := "z0-r0-19"
	w.stuck = ill
	w.nodes[ill].daemon = standing.Daemon{Refused: "the API refuses its pod", RefusedOf: "v2", Held: true}
	w.course.SetDaemon(ill, w.nodes[ill].daemon)
	w.pass(time.Hour)
	verdict, why := w.course.Verdict(ill)
	if w.on("v2") != 39 || verdict != standing.NodeFault || why != "the API refuses its pod" {
		_, message := w.course.Phase()
		t.Errorf("%d of 39 have v2: %s; the node is %s: %s", w.on("v2"), message, verdict, why)
	}
}

// minReadySeconds is raised, with another template. Daemons that work do not count as available for so long; they
// are not free to be taken for that.
func TestPodsThatAreReadyAreNotFree(t *testing.T) {
	for _, ready := range []bool{true, false} {
		w := newWorld()
		w.addFleet(1, 2, 10, "v1")
		w.start(policy(t, "{}"), dsWith("v1", 2))
		w.ds.Newest, w.ds.MinReadySeconds = "v2", 3600
		for _, name := range w.names() {
			m := w.nodes[name]
			m.daemon.Available, m.daemon.Since = false, time.Time{}
			if ready {
				m.daemon.Comes = w.now.Add(time.Hour)
			}
			w.course.SetDaemon(name, m.daemon)
		}
		w.tellRules()
		w.now = w.now.Add(Lasting) // others are waited for that long
		tick(w.course, w.now)
		want := map[bool]int{true: 2, false: 20}[ready]
		if n := len(w.take(100)); n != want {
			t.Errorf("ready %t: %d daemons of 20 are taken at once, want %d", ready, n, want)
		}
	}
}
