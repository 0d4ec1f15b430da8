package course

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// When all nodes behind the canary are out of reach, the change is not complete: they
// come back, and would get it without steps, windows or approvals.
func TestNodesThatAreAwayApproveNothing(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 2, 5, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]\nnodeFaults: {max: 100%}"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	var away []string
	for _, name := range w.names() {
		if w.nodes[name].daemon.Revision == "v1" {
			w.fault(name, "node does not answer", false)
			away = append(away, name)
		}
	}
	w.pass(time.Minute)
	for _, name := range away {
		w.fault(name, "", false)
	}
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	if n := w.on("v2"); n != 2 {
		t.Errorf("%d nodes have v2; nobody approved more than the canary's 2", n)
	}
}

// A step that an edit puts before the one under way has not been looked at: it and
// those after it have not begun.
func TestStepsOfAnEditedPolicyThatNeverBegan(t *testing.T) {
	const waves = "waves: [{name: canary, count: 2, soak: 1h}, {name: zones, each: zone, soak: 1h}]"
	for name, test := range map[string]struct {
		edited string
		pass   time.Duration
		step   string
		begun  int // nodes with the target soon after the edit
	}{
		"another order": {"waves: [{name: pilot, count: 3, soak: 1h}, {name: canary, count: 2, soak: 1h}]",
			time.Minute, "pilot", 5},
		"a step between":   {"waves: [{name: canary, count: 2, soak: 1h}, {name: pilot, count: 3, soak: 1h}, {name: zones, each: zone, soak: 1h}]", 70 * time.Minute, "pilot", 0},
		"the step is gone": {"waves: [{name: zones, each: zone, soak: 1h}]", time.Minute, "zones/z0", 8},
		"a step after it": {"waves: [{name: canary, count: 2, soak: 1h}, {name: pilot, count: 3, soak: 1h}]",
			time.Minute, "canary", 2},
		"a step before is gone": {"waves: [{name: zones, each: zone, soak: 1h}]", 70 * time.Minute, "zones/z0", 8},
		"only a length is another": {"waves: [{name: canary, count: 2, soak: 1h}, {name: zones, each: zone, soak: 2h}]",
			70 * time.Minute, "zones/z0", 8},
	} {
		for _, restart := range []bool{false, true} {
			w := newWorld()
			w.addFleet(3, 1, 6, "v1")
			w.start(policy(t, waves), daemonSet("v1"))
			w.update("v2")
			w.pass(test.pass)
			if edited := policy(t, test.edited); restart {
				w.againWith(edited, Followed, "") // while no controller was there to see it
			} else {
				w.course.SetPolicy(edited, Followed, "")
			}
			if got := w.course.Status().Step; got != test.step {
				t.Errorf("%s, restart %t: step %s is under way, want %s", name, restart, got, test.step)
			}
			w.pass(5 * time.Minute)
			if test.begun != 0 && w.on("v2") > test.begun {
				t.Errorf("%s, restart %t: %d nodes have v2, want %d at most", name, restart, w.on("v2"), test.begun)
			}
		}
	}
}

// A controller that starts while the policy cannot be read still knows which step had
// begun when it can be read again.
func TestStepOutlivesARestartWithoutPolicy(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 1, 6, "v1")
	p := policy(t, "waves: [{name: canary, count: 2}, {name: zones, each: zone, soak: 1h, approval: Manual}]")
	w.start(p, daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Minute)
	before := w.course.Status()
	if before.Step != "zones/z0" {
		t.Fatalf("step %s", before.Step)
	}
	for range 2 {
		w.againWith(nil, Lost, "nobody can read it")
		w.pass(time.Minute)
		got := w.course.Status()
		if got.Step != before.Step || got.StepStarted == nil || !got.StepStarted.Equal(before.StepStarted) {
			t.Fatalf("step %q since %v, was %q since %v", got.Step, got.StepStarted, before.Step, before.StepStarted)
		}
	}
	w.course.SetPolicy(p, Followed, "")
	if got := w.course.Status().Step; got != "zones/z0" {
		t.Errorf("step %s is under way", got)
	}
}

// An abort is heard while no policy can be read, or never could since the controller
// started: it is written down, and nodes go back as soon as somebody says how.
func TestAbortWithoutAPolicy(t *testing.T) {
	for _, follow := range []Following{Lost, Gone} {
		for _, halted := range []bool{false, true} {
			w := newWorld()
			w.addFleet(3, 1, 6, "v1")
			p := policy(t, "waves: [{name: canary, count: 3, soak: 1h}]")
			w.start(p, daemonSet("v1"))
			if halted {
				w.bad = func(revision, node string) string {
					return map[string]string{"v2": "it restarts"}[revision]
				}
			}
			w.update("v2")
			w.pass(time.Minute)
			given := w.on("v2")
			w.againWith(nil, follow, "nobody can read it")
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
			for range 2 {
				w.pass(time.Minute)
				w.expect(t, v1alpha1.PhasePaused, "nobody can read it; revision v2 ")
				w.expect(t, v1alpha1.PhasePaused, "somebody aborted it; "+words.Have(given)+" not gone back, and will when a policy can be followed")
				f := w.course.Status().FailedRevisions
				if len(f) != 1 || f[0].Revision != "v2" || f[0].Action != v1alpha1.FailureRollback || given == 0 ||
					w.on("v2") != given {
					t.Fatalf("%d nodes have v2, had %d; failed are %+v", w.on("v2"), given, f)
				}
				w.againWith(nil, follow, "nobody can read it")
			}
			lost := ""
			for _, name := range w.names() {
				if w.nodes[name].daemon.Revision == "v2" {
					lost = name
				}
			}
			w.nodes[lost].daemon, w.nodes[lost].ready = standing.Daemon{}, time.Time{} // somebody deletes it
			w.tell(lost)
			w.pass(time.Minute)
			if w.nodes[lost].daemon.Revision != "v1" {
				t.Errorf("what comes on %s is %q", lost, w.nodes[lost].daemon.Revision)
			}
			w.course.SetPolicy(p, Followed, "")
			w.pass(time.Minute)
			w.expect(t, v1alpha1.PhaseRolledBack, "somebody aborted it")
			if w.on("v1") != 18 {
				t.Errorf("%d of 18 nodes have gone back", w.on("v1"))
			}
		}
	}
}

// What is taken away with its machine failed all the same.
func TestEvidenceOutlivesItsNode(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 4, maxUnavailable: 1}]\nfailure: {max: 5%, min: 2, startDeadline: 1m, then: Rollback}"), daemonSet("v1"))
	w.bad = func(revision, _ string) string { return map[string]string{"v2": "it restarts"}[revision] }
	w.update("v2")
	for range 4 {
		w.pass(30 * time.Second)
		for _, name := range w.names() {
			if w.nodes[name].daemon.Revision == "v2" {
				w.removeNode(name) // a repairer of machines takes it away
			}
		}
	}
	w.expect(t, v1alpha1.PhaseRolledBack, "failed on 2 of 2 nodes")
	if n := len(w.given["v2"]); n != 2 {
		t.Errorf("%d nodes were given it", n)
	}
}

func TestMessageNamesWhatIsWaitedFor(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3, maxUnavailable: 1}]"), daemonSet("v1"))
	w.update("v2")
	p := w.take(1)
	w.nodes[p[0].Node].daemon = standing.Daemon{Trouble: "the old pod does not end"}
	w.tell(p[0].Node)
	w.now = w.now.Add(time.Hour)
	tick(w.course, w.now)
	_, message := w.course.Phase()
	for _, word := range []string{"step canary: 0 of 3 nodes done", "1 under way", p[0].Node,
		"the old pod does not end"} {
		if !strings.Contains(message, word) {
			t.Errorf("%q does not say %q", message, word)
		}
	}
}

// A pause holds the way back as well, and says so.
func TestPauseOfARollbackIsTold(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3, soak: 1h}]\nfailure: {then: Rollback}"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true, Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "aborted")
	w.expect(t, v1alpha1.PhaseRolledBack, "3 nodes have not gone back")
	w.expect(t, v1alpha1.PhaseRolledBack, "paused")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(time.Minute)
	if _, message := w.course.Phase(); strings.Contains(message, "paused") || w.on("v1") != 10 {
		t.Errorf("%s; %d nodes have v1", message, w.on("v1"))
	}
}

// A node whose first daemon failed had one, and counts against its domain.
func TestFailedFirstDaemonIsDown(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 2, "v1")
	first, second := w.names()[0], w.names()[1]
	w.nodes[second].daemon.Since, w.nodes[second].daemon.Available = time.Time{}, false
	tick(w.course, w.now)
	for _, name := range w.names() {
		w.tell(name)
	}
	w.course.SetPolicy(policy(t, "domains: [{key: rack, maxUnavailable: 1}]"), Followed, "")
	w.ds = daemonSet("v2")
	w.tellRules()
	w.course.Start(&v1alpha1.DaemonSetRolloutStatus{TargetRevision: "v2"})
	w.course.SetDaemon(second, standing.Daemon{Ended: true, Held: true})
	for _, p := range w.take(2) {
		if p.Node == first {
			t.Error("the other node of the rack was changed while the first was down")
		}
	}
}

// A first revision that one node keeps from being complete is on most nodes: the next
// one goes in steps. One that works on half of them only is nothing to go back to.
func TestFirstRevisionThatMostNodesRunIsStable(t *testing.T) {
	for works, want := range map[string]int{"z0-r1-09": 2, "z0-r1-00": 20} {
		for _, restart := range []bool{false, true} {
			w := newWorld()
			w.addFleet(1, 2, 10, "")
			w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]\nfailure: {max: 50%, min: 11}"),
				daemonSet("v1"))
			w.bad = func(revision, node string) string {
				if revision == "v1" && node >= works {
					return "no such device"
				}
				return ""
			}
			w.pass(20 * time.Minute)
			if restart {
				w.ds.Newest = "v2" // while no controller was there to see it
				w.again()
			} else {
				w.update("v2")
			}
			w.pass(10 * time.Minute)
			if n := w.on("v2"); n != want {
				phase, message := w.course.Phase()
				t.Errorf("%s, restart %t: %d nodes have v2, want %d; %s: %s", works, restart, n, want, phase, message)
			}
		}
	}
}

// Who goes back may have to wait for others of its domain too.
func TestMessageOfTheWayBackNamesWhatIsWaitedFor(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 5, soak: 1h}]\ndomains: [{key: rack, maxUnavailable: 2}]"),
		daemonSet("v1"))
	w.update("v2")
	w.pass(20 * time.Minute)
	down := 0
	for _, name := range w.names() {
		if w.nodes[name].daemon.Revision == "v1" && down < 2 {
			w.fault(name, "node does not answer", false)
			down++
		}
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "aborted")
	_, message := w.course.Phase()
	if !strings.Contains(message, "rack=z0-r0 has 2 unavailable, 2 allowed") {
		t.Error(message)
	}
}

// Without a policy that can be followed nobody says which nodes may have the target, not
// even of the first step: what must be made is stable. What has the target keeps it.
func TestWithoutAPolicyOnlyTheStableRevisionIsMade(t *testing.T) {
	for _, follow := range []Following{Lost, Gone} {
		w := newWorld()
		w.addFleet(1, 1, 4, "v1")
		w.start(policy(t, "{}"), daemonSet("v1"))
		w.update("v2")
		w.pass(3 * time.Second)
		had := w.on("v2")
		w.course.SetPolicy(nil, follow, "for a test")
		w.pass(10 * time.Second)
		w.addNode("late", map[string]string{}, "")
		w.pass(time.Minute)
		if got := w.nodes["late"].daemon.Revision; got != "v1" || had == 0 || w.on("v2") != had {
			t.Errorf("a node that came later has %q; %d nodes have v2, and had before %d", got, w.on("v2"), had)
		}
		w.update("v3")
		w.addNode("later", map[string]string{}, "")
		w.pass(time.Minute)
		if got := w.nodes["later"].daemon.Revision; got != "v1" || w.on("v3") > 0 {
			t.Errorf("after the next edit a node that came later has %q, want v1", got)
		}
	}
}

// A ramp that is edited in the middle goes on where all that have the change have room: steps that keep their names
// and become larger have not begun. After a restart too.
func TestARampThatIsMadeSteeperGoesOnFromItsNodes(t *testing.T) {
	const gentle = "waves: [{name: all, nodes: {}, ramp: {from: 1}, soak: 10m}]"
	const steep = "waves: [{name: all, nodes: {}, ramp: {from: 20}, soak: 10m}]"
	for _, restart := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 1, 200, "v1")
		w.start(policy(t, gentle), dsWith("v1", 200))
		w.update("v2")
		for w.on("v2") < 7 {
			w.pass(time.Second)
		}
		change := func(text string) {
			w.policy = policy(t, text)
			if restart {
				w.againWith(w.policy, Followed, "")
			} else {
				w.course.SetPolicy(w.policy, Followed, "")
			}
			w.pass(time.Minute)
		}
		change(gentle)
		if step := w.course.Status().Step; w.on("v2") != 7 || step != "all/3" {
			t.Errorf("restart %t: with the same ramp %d have the change in step %s", restart, w.on("v2"), step)
		}
		change(steep)
		if step := w.course.Status().Step; w.on("v2") != 20 || step != "all/1" {
			t.Errorf("restart %t: %d have the change in step %s, want 20 in all/1", restart, w.on("v2"), step)
		}
		w.pass(10 * time.Minute)
		if n := w.on("v2"); n != 60 {
			t.Errorf("restart %t: then %d have the change, want 60", restart, n)
		}
		change(gentle)
		if n := w.on("v2"); n != 60 {
			t.Errorf("restart %t: with the first ramp %d have the change", restart, n)
		}
		w.pass(3 * time.Hour)
		w.expect(t, v1alpha1.PhaseComplete, "200 of 200")
	}
}
