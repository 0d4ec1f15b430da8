package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// most lets the next revision go out and returns on how many nodes at most something was
// under way that counts.
func (w *world) most(counts func(m *machine) bool) (most int) {
	for range 120 {
		now := 0
		for _, m := range w.nodes {
			now += one(counts(m))
		}
		most = max(most, now)
		w.pass(time.Second)
	}
	return most
}

func (w *world) complete(t *testing.T) {
	t.Helper()
	if phase, message := w.course.Phase(); phase != v1alpha1.PhaseComplete {
		t.Errorf("the rollout is %s: %s", phase, message)
	}
}

// Nodes that only the next revision selects get their first daemon as many at a time as
// may be unavailable.
func TestFirstDaemonsComeWithinTheLimit(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 5, "")
	w.rules["v1"] = func(node string) bool { return node < "z1" }
	w.start(policy(t, "waves: [{name: all, each: zone, maxUnavailable: 2}]"), daemonSet("v1"))
	w.pass(time.Minute)
	w.update("v2")
	starting := func(m *machine) bool {
		return m.daemon.Revision == "v2" && !m.daemon.Available && m.labels["zone"] == "z1"
	}
	if most := w.most(starting); most != 2 {
		t.Errorf("%d nodes got their first daemon at a time, want 2", most)
	}
	w.complete(t)
}

// What is taken away counts in its domain until it is gone, also where replaced pods do
// not since the next one starts beside them.
func TestDeparturesCountInTheirDomain(t *testing.T) {
	for _, surge := range []bool{false, true} {
		w := newWorld()
		w.stops = 3 * time.Second
		w.addFleet(1, 1, 5, "v1")
		w.rules["v2"] = func(string) bool { return false }
		ds := daemonSet("v1")
		ds.Surge = surge
		w.start(policy(t, "waves: [{name: all, each: zone, maxUnavailable: 5}]\ndomains: [{key: rack, maxUnavailable: 1}]"), ds)
		w.update("v2")
		if most := w.most(func(m *machine) bool { return m.daemon.Ending != "" }); most != 1 {
			t.Errorf("with surge %v: %d daemons of a rack went at a time, want 1", surge, most)
		}
		w.complete(t)
	}
}

// A permit for a pod that was never made is no longer needed when the next template leaves
// the node out: it must not use up the limit.
func TestPermitThatNobodyNeedsAnyMore(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 3, "")
	w.start(policy(t, "{}"), daemonSet("v1"))
	permits := w.take(3)
	if len(permits) != 3 {
		t.Fatalf("permits are %+v", permits)
	}
	for _, p := range permits[1:] {
		w.nodes[p.Node].daemon = standing.Daemon{Revision: "v1", Available: true, Since: w.now, Bound: w.now}
		w.tell(p.Node)
	}
	w.rules["v2"] = func(node string) bool { return node != permits[0].Node }
	w.update("v2")
	w.pass(time.Minute)
	w.complete(t)
	if w.on("v2") != 2 {
		t.Errorf("%d nodes have v2, want 2", w.on("v2"))
	}
}

// What is wrong with a revision does not show where the daemon is only taken away: such a
// step is no canary, neither of a revision that crashes elsewhere nor of a mistaken selector.
func TestDeparturesAreNoCanary(t *testing.T) {
	for name, selects := range map[string]func(node string) bool{
		"the others get it":  func(node string) bool { return node >= "z1" },
		"it selects nothing": func(string) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.addFleet(2, 1, 20, "v1")
			w.rules["v2"] = selects
			w.bad = func(revision, _ string) string {
				if revision == "v2" {
					return "it crashes"
				}
				return ""
			}
			w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {zone: z0}}}]"), daemonSet("v1"))
			w.pass(time.Minute)
			w.update("v2")
			w.pass(2 * time.Minute)
			if phase, message := w.course.Phase(); phase != v1alpha1.PhaseWaitingForApproval || w.on("v2") != 0 ||
				w.on("v1") != 20 {
				t.Errorf("after a canary that only loses the daemon %d nodes have v2 and %d have v1; the rollout is %s: %s", w.on("v2"), w.on("v1"), phase, message)
			}
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v2",
				Step: "canary"}})
			w.pass(time.Minute)
			if w.on("v1") == 20 {
				t.Error("nothing begins after somebody approved it")
			}
		})
	}
}
