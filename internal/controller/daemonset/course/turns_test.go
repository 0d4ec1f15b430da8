package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// turn lets nodes go on until one more has its turn, for which nothing is done yet.
func (w *world) turn(t *testing.T) {
	t.Helper()
	for range 100 {
		w.now = w.now.Add(time.Second)
		tick(w.course, w.now)
		w.act(0)
		if len(w.take(1)) > 0 {
			return
		}
	}
	t.Fatal("no turn")
}

func surging(newest string) DaemonSet {
	ds := daemonSet(newest)
	ds.Surge = true
	return ds
}

// With surge a turn was given, its pod is not made yet, and the change is aborted.
func TestATurnEndsWithTheChange(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3}]"), surging("v1")) // 10% of 10: one at a time
	w.update("v2")
	w.pass(time.Second)
	w.turn(t) // its turn has come; the pod beside the old one is not made yet
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	w.pass(2 * time.Hour)
	phase, message := w.course.Phase()
	if w.on("v2") > 0 {
		t.Errorf("two hours later %d nodes have v2: %s: %s", w.on("v2"), phase, message)
	}
}

// The same with a further template.
func TestATurnEndsWithTheTemplate(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2}]"), surging("v1"))
	w.update("v2")
	w.pass(7 * time.Second)
	w.turn(t)
	w.update("v3")
	w.pass(2 * time.Hour)
	phase, message := w.course.Phase()
	if w.on("v3") != 10 {
		t.Errorf("two hours later %d nodes have v3: %s: %s", w.on("v3"), phase, message)
	}
}

// And back to the stable template.
func TestNoTurnOutlivesCompletion(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2}]"), surging("v1"))
	w.update("v2")
	if len(w.take(1)) != 1 {
		t.Fatal("no turn")
	}
	w.update("v1")
	w.expect(t, v1alpha1.PhaseComplete, "")
	if n := w.course.queue.Totals[standing.Ours]; n != 0 {
		t.Errorf("complete, and %d nodes count as unavailable by us", n)
	}
}

// The API refuses for ever to delete the pod of one node.
func TestARefusedDeletionHoldsUpNobody(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2}]"), daemonSet("v1"))
	w.update("v2")
	stuck := ""
	for range 3600 {
		w.now = w.now.Add(time.Second)
		tick(w.course, w.now)
		for _, p := range w.take(100) {
			m := w.nodes[p.Node]
			if stuck == "" {
				stuck = p.Node
			}
			if p.Node == stuck {
				m.daemon.Held = true
				w.course.SetDaemon(p.Node, m.daemon)
				continue
			}
			m.daemon = standing.Daemon{}
			w.course.SetDaemon(p.Node, m.daemon)
		}
		if m := w.nodes[stuck]; w.now.Second()%30 == 0 {
			m.daemon.Held = false
			w.course.SetDaemon(stuck, m.daemon)
		}
		w.act(0)
	}
	if v, why := w.course.Verdict(stuck); w.on("v2") != 19 || v != standing.Waiting && v != standing.Changing {
		phase, message := w.course.Phase()
		t.Errorf("%d have v2; %s: %s; %s is %s: %s", w.on("v2"), phase, message, stuck, v, why)
	}
}

// The next try is long to come, and time alone says that the node holds up no other any more.
func TestARefusedDeletionHoldsUpNobodyUntilItsNextTry(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 2, maxUnavailable: 2}]\nfailure: {startDeadline: 1m}"),
		daemonSet("v1"))
	w.update("v2")
	refused := w.take(100)[0].Node
	w.nodes[refused].daemon.Held = true
	w.course.SetDaemon(refused, w.nodes[refused].daemon)
	for _, name := range w.names() {
		if w.course.StepOf(name) == "canary" && name != refused {
			w.nodes[name].daemon = standing.Daemon{}
			w.course.SetDaemon(name, standing.Daemon{})
		}
	}
	w.pass(time.Hour)
	if n := w.on("v2"); n != 9 {
		phase, message := w.course.Phase()
		t.Errorf("%d of 9 have v2; %s: %s", n, phase, message)
	}
}

// A policy is edited between the moment in which changes were let begin and that in which the controller would have
// deleted the pods. Their nodes have what they are to have by then, and use up no limit.
func TestAnEditEndsChangesThatWereLetBegin(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "{}"), dsWith("v1", 2))
	w.update("v2")
	begun := w.take(100)
	w.course.SetPolicy(policy(t, "waves: [{name: pilot, count: 1, approval: Manual}]"), Followed, "")
	for _, p := range begun {
		if o := w.course.Order(p.Node); o.Change && w.course.StepOf(p.Node) != "pilot" {
			t.Errorf("%s is still to be changed: %+v", p.Node, o)
		}
	}
	if n := w.course.queue.Totals[standing.Ours]; len(begun) != 2 || n > 1 {
		t.Errorf("of %d nodes whose change was let begin %d use up the limit", len(begun), n)
	}
}
