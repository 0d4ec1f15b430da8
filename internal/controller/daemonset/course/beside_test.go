package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

const canaryOfTwo = "waves: [{name: canary, count: 2, approval: Manual}]"

// newBeside is a world beside another controller, of 20 nodes that have a revision.
func newBeside(t *testing.T, has, waves string) *world {
	t.Helper()
	w := newWorld()
	w.revisions["t"], w.revisions["u"] = true, true
	w.addFleet(1, 2, 10, has)
	ds := daemonSet(has)
	ds.Beside = true
	w.start(policy(t, waves), ds)
	return w
}

// remake has the other controller make the pods of so many nodes, at most, that have a revision by another one.
func (w *world) remake(most int, has, by string) (made int) {
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Revision == has && made < most {
			made++
			m.daemon = standing.Daemon{Revision: by, Available: true, Since: w.now, Made: w.now, Bound: w.now}
			w.course.SetDaemon(name, m.daemon)
		}
	}
	return made
}

// approve has somebody let the change go on behind a step.
func (w *world) approve(revision, step string) {
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: revision, Step: step}})
}

// TestVariantsMisplaceNoNode: where nothing but variants changes, a pod that is the same by the new ones was so before.
// Its node is not to go back, and counts as changed when its step comes.
func TestVariantsMisplaceNoNode(t *testing.T) {
	w := newBeside(t, "t_aa", canaryOfTwo)
	w.update("t_bb")
	w.remake(8, "t_aa", "t_bb")
	w.pass(time.Minute)
	if n := w.course.Misplaced(); n != 0 {
		t.Errorf("%d nodes are misplaced", n)
	}
	w.check = func(p Permit) {
		if p.To != "t_bb" || p.From == "t_bb" {
			t.Errorf("%s goes from %s to %s", p.Node, p.From, p.To)
		}
	}
	w.approve("t_bb", v1alpha1.AllSteps)
	w.pass(5 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes have revision t_bb")
}

// TestVariantsChangeInTheMiddle: the variants change while a new template is on its way. What has it already, and is
// the same by the new variants, was given it in its turn, and does not go back.
func TestVariantsChangeInTheMiddle(t *testing.T) {
	w := newBeside(t, "t_aa",
		"waves: [{name: canary, count: 2, approval: Manual}, {name: half, count: 8, approval: Manual}]")
	w.update("u_aa")
	w.pass(time.Minute)
	w.approve("u_aa", "canary")
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
	w.approve("u_bb", v1alpha1.AllSteps)
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20 nodes have revision u_bb")
}

// TestMisplacedNodesGoBackFirst has pods come, while nobody answers the other controller, of the newest template or of
// the stable one without their content and variants. They go back, within the limit, before the next step begins,
// though that was approved.
func TestMisplacedNodesGoBackFirst(t *testing.T) {
	const one, other = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	for _, c := range []struct{ from, to, made string }{
		{"v1", "v2", "v2"},
		{"t_aa", "u_aa", "u"}, {"t_aa", "u_aa", "t"}, {"t_aa", "t_bb", "t"}, {"t", "u_aa", "u"}, {"t_aa", "u", "t"},
		{"t." + one, "u." + other, "u"}, {"t." + one, "u." + other, "t"}, {"t." + one, "t." + other, "t"},
		{"t_aa." + one, "u_bb." + other, "u"},
	} {
		w := newBeside(t, c.from, canaryOfTwo)
		w.update(c.to)
		w.pass(time.Minute)
		w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
		w.remake(3, c.from, c.made)
		if n := w.course.Misplaced(); n != 3 {
			t.Errorf("%+v: %d nodes are misplaced, want 3", c, n)
		}
		w.approve(c.to, v1alpha1.AllSteps)
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
	w := newBeside(t, "t_aa", canaryOfTwo)
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
