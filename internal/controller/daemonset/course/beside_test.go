package course

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// TestVariantsMisplaceNoNode: where nothing but variants changes, a pod that is the same by the new ones was so before.
// Its node is not to go back, and counts as changed when its step comes.
func TestVariantsMisplaceNoNode(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "t_aa")
	ds := daemonSet("t_aa")
	ds.Beside = true
	w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]"), ds)
	w.update("t_bb")
	same := 0
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		if m := w.nodes[name]; same < 8 {
			same++
			m.daemon = standing.Daemon{Revision: "t_bb", Available: true, Since: w.now, Made: w.now, Bound: w.now}
			w.course.SetDaemon(name, m.daemon)
		}
	}
	w.pass(time.Minute)
	if n := w.course.Misplaced(); n != 0 {
		t.Errorf("%d nodes are misplaced", n)
	}
	w.check = func(p Permit) {
		if p.To != "t_bb" || p.From == "t_bb" {
			t.Errorf("%s goes from %s to %s", p.Node, p.From, p.To)
		}
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "t_bb",
		Step: v1alpha1.AllSteps}})
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes have revision t_bb")
}

// TestVariantsChangeInTheMiddle: the variants change while a new template is on its way. What has it already, and is
// the same by the new variants, was given it in its turn, and does not go back.
func TestVariantsChangeInTheMiddle(t *testing.T) {
	w := newWorld()
	w.revisions["t"], w.revisions["u"] = true, true
	w.addFleet(1, 2, 10, "t_aa")
	ds := daemonSet("t_aa")
	ds.Beside = true
	w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}, {name: half, count: 8, approval: Manual}]"),
		ds)
	w.update("u_aa")
	w.pass(time.Minute)
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "u_aa", Step: "canary"}})
	w.pass(5 * time.Minute)
	same := 0
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == "u_aa" {
			same++
			m.daemon.Revision = "u_bb"
			w.course.SetDaemon(name, m.daemon)
		}
	}
	w.check = func(p Permit) {
		if p.To != "u_bb" || p.From == "u_bb" {
			t.Errorf("%s goes from %s to %s", p.Node, p.From, p.To)
		}
	}
	w.update("u_bb")
	if n := w.course.Misplaced(); n != 0 || same != 10 {
		t.Errorf("%d of %d nodes are misplaced", n, same)
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "u_bb",
		Step: v1alpha1.AllSteps}})
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes have revision u_bb")
}

// TestPodsWithoutVariantsGoBack: nobody answered when they were made, of the newest template or of the stable one. Both
// go back before anything else, though their nodes' step has not begun.
func TestPodsWithoutVariantsGoBack(t *testing.T) {
	const one, other = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	for _, c := range []struct{ from, to, made string }{
		{"t_aa", "u_aa", "u"}, {"t_aa", "u_aa", "t"}, {"t_aa", "t_bb", "t"}, {"t", "u_aa", "u"}, {"t_aa", "u", "t"},
		{"t." + one, "u." + other, "u"}, {"t." + one, "u." + other, "t"}, {"t." + one, "t." + other, "t"},
		{"t_aa." + one, "u_bb." + other, "u"},
	} {
		w := newWorld()
		w.revisions["t"], w.revisions["u"] = true, true
		w.addFleet(1, 2, 10, c.from)
		ds := daemonSet(c.from)
		ds.Beside = true
		w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]"), ds)
		w.update(c.to)
		w.pass(time.Minute)
		wrong := 0
		for _, name := range w.names() {
			if m := w.nodes[name]; m.daemon.Revision == c.from && wrong < 3 {
				wrong++
				m.daemon = standing.Daemon{Revision: c.made, Available: true, Since: w.now, Made: w.now, Bound: w.now}
				w.course.SetDaemon(name, m.daemon)
			}
		}
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: c.to,
			Step: v1alpha1.AllSteps}})
		back := 0
		w.check = func(p Permit) {
			switch {
			case p.To == c.from:
				back++
			case back < 3:
				t.Errorf("%+v: %s goes on to %s after %d of 3 have begun to go back", c, p.Node, p.To, back)
			}
		}
		w.pass(5 * time.Minute)
		if back != 3 {
			t.Errorf("%+v: %d nodes went back, want 3", c, back)
		}
		w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes have revision "+c.to)
	}
}

// TestVariantsThatEndMisplaceNoNode: the last variant goes. What is the template's already is not to get it back.
func TestVariantsThatEndMisplaceNoNode(t *testing.T) {
	w := newWorld()
	w.revisions["t"] = true
	w.addFleet(1, 2, 10, "t_aa")
	ds := daemonSet("t_aa")
	ds.Beside = true
	w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]"), ds)
	for _, name := range w.names()[:8] {
		w.nodes[name].daemon.Revision = "t"
		w.course.SetDaemon(name, w.nodes[name].daemon)
	}
	w.check = func(p Permit) {
		if p.From == "t" {
			t.Errorf("%s goes from %s to %s", p.Node, p.From, p.To)
		}
	}
	w.update("t")
	w.pass(time.Minute)
	if n := w.course.Misplaced(); n != 0 {
		t.Errorf("%d nodes are misplaced", n)
	}
}

// TestMisplacedNodesGoBackFirst has pods of the target come where its step has not begun, as beside another controller
// when nobody answers it. They go back, within the limit, before the next step begins, though that was approved.
func TestMisplacedNodesGoBackFirst(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 10, "v1")
	ds := daemonSet("v1")
	ds.Beside = true
	w.start(policy(t, "waves: [{name: canary, count: 2, approval: Manual}]"), ds)
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	wrong := 0
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		m := w.nodes[name]
		if wrong < 3 && m.daemon.Revision == "v1" {
			wrong++
			m.daemon = standing.Daemon{Revision: "v2", Available: true, Since: w.now, Made: w.now, Bound: w.now}
			w.course.SetDaemon(name, m.daemon)
		}
	}
	if n := w.course.Misplaced(); n != 3 {
		t.Fatalf("%d nodes are misplaced, want 3", n)
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v2",
		Step: v1alpha1.AllSteps}})
	back := 0
	w.check = func(p Permit) {
		switch {
		case p.To == "v1":
			back++
		case back < 3:
			t.Errorf("%s goes on to %s after %d of 3 have begun to go back", p.Node, p.To, back)
		}
	}
	w.pass(5 * time.Minute)
	if back != 3 {
		t.Errorf("%d nodes went back, want 3", back)
	}
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes have revision v2")
}
