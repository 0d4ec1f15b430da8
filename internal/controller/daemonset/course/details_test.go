package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/failures"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// What a status says of a step and of failures is what it says after a restart, and failures that heal are forgotten.
func TestStatusIsTheSameAfterARestart(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 10, maxUnavailable: 10, soak: 1h}]\nfailure: {min: 5, startDeadline: 1m}"), dsWith("v1", 10))
	failing := map[string]bool{}
	w.bad = func(revision, node string) string {
		if revision == "v2" && failing[node] {
			return "it crashes"
		}
		return ""
	}
	gone := ""
	for _, name := range w.names() {
		if w.course.StepOf(name) == "canary" {
			gone, failing[name] = name, len(failing) < 2
		}
	}
	w.rules["v2"] = func(node string) bool { return node != gone }
	w.pass(time.Second)
	w.update("v2")
	w.pass(2 * time.Minute)
	before := w.course.Status()
	w.now = w.now.Add(time.Minute)
	w.crash()
	after := w.course.Status()
	if before.LastDeparture == nil || !after.LastDeparture.Equal(before.LastDeparture) ||
		!after.StepStarted.Equal(before.StepStarted) {
		t.Errorf("step since %s, and %s after a restart; last departure %s, and %s", before.StepStarted,
			after.StepStarted, before.LastDeparture, after.LastDeparture)
	}
	if n := len(after.Failures.Nodes); n != 2 || after.Failures.More != 0 {
		t.Fatalf("%d nodes fail after a restart, and %d more; want 2", n, after.Failures.More)
	}
	if why := w.course.Failing(); why[standing.BecauseRestarts] != 2 {
		t.Errorf("they fail for %v", why)
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	for _, name := range after.Failures.Nodes {
		m := w.nodes[name]
		m.daemon.Trouble, m.daemon.Available, m.daemon.Since = "", true, w.now
		m.daemon.Made = w.now // it was made again
		m.daemon.Restarts = 0
		w.tell(name)
	}
	w.pass(2 * time.Hour)
	if n := w.course.state.failures.Count(); n != 0 {
		t.Errorf("%d nodes fail; all have healed", n)
	}
}

// A node that fails for one reason is not said to fail for what follows from it.
func TestTheFirstReasonOfAFailureStays(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, "failure: {min: 5, startDeadline: 1m}"), dsWith("v1", 1))
	w.bad = func(revision, _ string) string { return map[string]string{"v2": "it crashes"}[revision] }
	w.update("v2")
	w.pass(10 * time.Second)
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == "v2" {
			m.daemon.Restarts = 2 // a container of it was replaced by hand
			w.tell(name)
		}
	}
	w.pass(10 * time.Minute)
	if why := w.course.Failing(); why[standing.BecauseRestarts] != 1 {
		t.Errorf("it fails for %v", why)
	}
}

// A new DaemonSet asks for no steps, also when its controller is restarted in the middle.
func TestANewDaemonSetAsksForNoStepsAfterARestart(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "")
	w.start(policy(t, "waves: [{name: canary, count: 1, approval: Manual}]"), dsWith("v1", 2))
	w.take(2)
	w.crash()
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes")
}

// What works on most nodes becomes the stable revision when another template comes, though a node never had it.
func TestWhatWorksOnMostNodesIsStable(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "")
	w.start(policy(t, "waves: [{name: canary, count: 1, soak: 1h}]"), dsWith("v1", 10))
	w.fault("z0-r0-00", "the node does not answer", true)
	w.pass(10 * time.Second)
	w.course.state.stable = "" // as it is before the change is complete
	w.course.takeAim()
	w.update("v2")
	if s := w.course.Status(); s.StableRevision != "v1" {
		t.Errorf("%q is stable, want v1", s.StableRevision)
	}
}

// Where none is stable, what works on most nodes stands in for it, and neither what failed, nor the target, nor what
// most have that works on fewer.
func TestWhatStandsInWorksOnMostNodes(t *testing.T) {
	w := newWorld()
	have := func(revision string, n int, works bool) {
		for range n {
			name := string(rune('a' + len(w.nodes)))
			w.addNode(name, nil, revision)
			if !works {
				w.nodes[name].daemon.Available, w.nodes[name].daemon.Since = false, time.Time{}
				w.tell(name)
			}
		}
	}
	have("a", 2, true)
	have("b", 3, true)
	have("c", 5, false)
	have("d", 1, true)
	have("failed", 6, true)
	have("target", 4, true)
	w.policy, w.ds = policy(t, "waves: [{name: canary, count: 1, soak: 1h}]"), dsWith("failed", 1)
	tick(w.course, w.now)
	w.course.SetPolicy(w.policy, Followed, "")
	w.tellRules()
	w.course.Start(&v1alpha1.DaemonSetRolloutStatus{TargetRevision: "failed", Step: "canary",
		FailedRevisions: []v1alpha1.FailedRevision{{Revision: "failed", Action: halt}}})
	w.update("target")
	if c := w.course; c.state.stable != "" || c.Meanwhile() != "b" {
		t.Errorf("%q is stable, and %q stands in for it; want b", c.state.stable, c.state.standIn)
	}
}

// Changes that were let begin under another limit, or to be done in another way, are not let begin any more.
func TestAnotherLimitRevokesWhatWasLetBegin(t *testing.T) {
	for _, edit := range []func(*DaemonSet){
		func(ds *DaemonSet) { ds.MaxUnavailable = dsWith("", 1).MaxUnavailable },
		func(ds *DaemonSet) { ds.Surge = true },
	} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "{}"), dsWith("v1", 5))
		w.update("v2")
		begun := w.take(100)
		edit(&w.ds)
		w.tellRules()
		if n := w.course.queue.Totals[standing.Ours]; len(begun) != 5 || n != 0 {
			t.Errorf("of %d changes %d are let begin", len(begun), n)
		}
	}
}

// A node that came late into a step is waited for when the next change begins.
func TestLatenessEndsWithTheChange(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2, soak: 1h}]"), dsWith("v1", 1))
	w.update("v2")
	w.pass(3 * time.Hour)
	n := w.course.nodes["z0-r0-00"]
	n.change.late = true
	w.update("v3")
	if n.change.late {
		t.Error("the node is late in a step that has just begun")
	}
	n.change.late = true
	w.course.SetPolicy(policy(t, "waves: [{name: canary, count: 2, soak: 2h}]"), Followed, "")
	if n.change.late {
		t.Error("the node is late in a step of another policy")
	}
}

// Why the rollout is paused is told at once.
func TestWhyItIsPausedIsTold(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "{}"), dsWith("v1", 1))
	w.update("v2")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	w.expect(t, v1alpha1.PhasePaused, "somebody paused it")
	w.course.PausedBecause("its rollout was deleted")
	w.expect(t, v1alpha1.PhasePaused, "its rollout was deleted")
	w.course.PausedBecause("")
	w.expect(t, v1alpha1.PhasePaused, "somebody paused it")
}

// Who is asked for the next tick alone says when a window opens.
func TestTheNextTickIsKnownUnasked(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "windows: [{from: '12:00', to: '13:00'}]"), dsWith("v1", 1))
	w.update("v2")
	want := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	if at, any := w.course.NextTick(); !any || !at.Equal(want) {
		t.Errorf("the next tick is at %s, want %s", at, want)
	}
}

// Where a halted revision does not let the old one start either, an abort takes the other nodes back all the same.
func TestAnAbortOfWhatIsHaltedPassesBrokenNodesBy(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 10, maxUnavailable: 3, soak: 1h}]\nfailure: {max: 20%, startDeadline: 1m}"), dsWith("v1", 1))
	w.update("v2")
	w.pass(time.Minute)
	broken := 0
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == "v2" && broken < 3 {
			broken++
			m.daemon.Available, m.daemon.Since, m.daemon.Restarts, m.daemon.Trouble = false, time.Time{}, 5, "the disk is full"
			w.course.nodes[name].change.taken = true
			w.tell(name)
		}
	}
	w.expect(t, v1alpha1.PhaseHalted, "3 of 10")
	full := map[string]bool{}
	for _, name := range w.names() {
		full[name] = w.nodes[name].daemon.Trouble != ""
	}
	w.bad = func(_, node string) string {
		if full[node] {
			return "the disk is full"
		}
		return ""
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(10 * time.Minute)
	if n := w.on("v2"); n != 0 {
		_, message := w.course.Phase()
		t.Errorf("%d nodes still have v2: %s", n, message)
	}
}

// A daemon that was broken before, on the way back, is not unavailable by our doing when the target is tried again.
func TestARetryTakesNoBlameForWhatWasBroken(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, "failure: {then: Rollback}"), dsWith("v1", 1))
	w.bad = func(revision, _ string) string { return map[string]string{"v2": "it crashes"}[revision] }
	w.update("v2")
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "it crashes")
	m := w.nodes["z0-r0-19"]
	m.daemon.Available, m.daemon.Since, m.daemon.Trouble = false, time.Time{}, "it was broken by hand"
	w.tell("z0-r0-19")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true, Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
	if n := w.course.queue.Totals[standing.Ours]; n != 0 {
		t.Errorf("%d nodes count as unavailable by our doing", n)
	}
}

// Of more names than a status has room for nobody knows what those were like that it does not name. Those that it
// names it does.
func TestWhatIsStoredOfAWayBackStays(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 2, "")
	w.start(policy(t, "{}"), dsWith("v1", 1))
	stored := map[string]standing.Before{"z0-r0-00": standing.WasNotAvailable}
	for i := range failures.Kept {
		stored[string(rune(0x4e00+i))] = standing.WasAvailable
	}
	w.course.recallReturn(stored)
	if stored["z0-r0-00"] != standing.WasNotAvailable || stored["z0-r0-01"] != standing.WasAvailable {
		t.Errorf("the named one was %s, the other %s", stored["z0-r0-00"], stored["z0-r0-01"])
	}
}

// Some soak and others start: the first revision is on its way, and does not soak.
func TestAFirstRevisionSoaksWhenAllNodesHaveIt(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "")
	w.start(policy(t, "waves: [{name: all, percent: 100, soak: 1h}]"), dsWith("v1", 2))
	w.pass(3 * time.Second)
	if n := w.on("v1"); n == 0 {
		t.Fatal("no node has the first revision")
	}
	w.starts = time.Hour
	w.addNode("one-more", nil, "")
	w.pass(2 * time.Second)
	w.expect(t, v1alpha1.PhaseProgressing, "have the first revision")
}

// Nodes that go back from a failed revision before their step begins are not misplaced: only beside another controller
// there are such.
func TestNodesThatReturnAreNotMisplaced(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1, soak: 1h}]"), dsWith("v1", 1))
	w.update("v2")
	w.pass(time.Minute)
	for _, name := range w.names() {
		if w.course.StepOf(name) != "canary" {
			w.nodes[name].daemon.Revision = "v0"
			w.tell(name)
			w.nodes[name].daemon.Available, w.nodes[name].daemon.Since = false, time.Time{}
			w.tell(name)
		}
	}
	w.now = w.now.Add(Lasting)
	tick(w.course, w.now)
	if w.course.queue.Totals[standing.Pending] == 0 || w.course.Misplaced() != 0 {
		t.Errorf("%d nodes may go back, and %d are misplaced", w.course.queue.Totals[standing.Pending], w.course.Misplaced())
	}
}

// Where no other node is left to compare with, as many nodes fall out of order as had when the change began, or the
// controller started.
func TestWhatWasUsualBeforeIsNoEvidence(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "waves: [{name: all, percent: 100, soak: 1h}]\nnodeFaults: {max: 100%}\nfailure: {min: 2, max: 5%}"), dsWith("v1", 10))
		fall := func(names []string, why string) {
			for _, name := range names {
				w.fault(name, why, why != "")
			}
			w.pass(10 * time.Second)
		}
		if restart {
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
			w.update("v2")
		}
		fall(w.names()[:3], "the node does not answer")
		if restart {
			w.crash()
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
		} else {
			w.update("v2")
		}
		fall(w.names()[:3], "")
		fall(w.names()[7:], "the node does not answer")
		if n := w.course.state.failures.Count(); w.on("v2") != 10 || n != 0 {
			t.Errorf("restart %t: %d of %d nodes fail, and as many had fallen before", restart, n, w.on("v2"))
		}
	}
}

// What was due is not due for ever.
func TestTheNextTickIsLater(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 3, 10, "v1")
	w.start(policy(t, "waves: [{name: all, percent: 100, soak: 1h}]\ndomains: [{key: rack, maxUnavailable: 10}]\nfailure: {min: 2, max: 50%}"), dsWith("v1", 30))
	w.update("v2")
	w.pass(time.Minute)
	for _, name := range w.names()[:2] {
		w.fault(name, "the node does not answer", true)
	}
	ticks := 0
	for at, any := w.course.NextTick(); any; at, any = w.course.NextTick() {
		ticks++
		if !at.After(w.now) || ticks > 1000 {
			t.Fatalf("at %s the next tick is to be at %s; it is number %d", w.now, at, ticks)
		}
		w.now = at
		tick(w.course, at)
	}
}

// Nodes go back without a pace until all have, and not when a change is complete.
func TestUndoingAChangeIsAReturn(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "{}"), dsWith("v1", 1))
	w.update("v2")
	w.pass(5 * time.Second)
	if w.course.Returns() {
		t.Error("nodes go back in the middle of a change")
	}
	w.update("v1")
	if !w.course.Returns() {
		t.Error("nodes do not go back when the old template is set again")
	}
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "10 of 10")
	if w.course.Returns() {
		t.Error("nodes go back when all have")
	}
}
