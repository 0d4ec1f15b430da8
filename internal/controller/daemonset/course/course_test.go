package course

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

func policy(t interface {
	Helper()
	Fatal(...any)
}, text string) *rolloutpolicy.Policy {
	t.Helper()
	var spec v1alpha1.RolloutPolicySpec
	if err := yaml.UnmarshalStrict([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	p, err := rolloutpolicy.Compile(&spec, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const fleetPolicy = `
waves:
- {name: canary, count: 3, spreadBy: zone, soak: 1m}
- {name: zones, each: zone, maxUnavailable: 20%, soak: 30s}
domains:
- {key: rack, maxUnavailable: 1}
failure: {max: 5%, min: 2, startDeadline: 2m, restarts: 3, then: Rollback}
`

func daemonSet(newest string) DaemonSet {
	return DaemonSet{Set: placement.Set{Newest: newest}, MaxUnavailable: rolloutpolicy.LimitOf(intstr.FromString("10%"))}
}

func (w *world) expect(t *testing.T, phase v1alpha1.Phase, words string) {
	t.Helper()
	got, message := w.course.Phase()
	if got != phase || !strings.Contains(message, words) {
		t.Fatalf("%s: %s; want %s: …%s…", got, message, phase, words)
	}
}

func TestGoodChangeGoesThroughAllSteps(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 4, 10, "v1")
	w.start(policy(t, fleetPolicy), daemonSet("v1"))
	w.expect(t, v1alpha1.PhaseComplete, "120 of 120 nodes have revision v1")
	w.update("v2")
	w.expect(t, v1alpha1.PhaseProgressing, "step canary")
	w.pass(10 * time.Second)
	if w.on("v2") != 3 {
		t.Fatalf("%d nodes have v2 while the canary soaks", w.on("v2"))
	}
	w.expect(t, v1alpha1.PhaseSoaking, "step canary: 3 nodes soak")
	w.pass(55 * time.Second)
	w.expect(t, v1alpha1.PhaseProgressing, "step zones/z0")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "120 of 120 nodes have revision v2")
	if s := w.course.Status(); s.StableRevision != "v2" || s.Counts["Current"] != 120 {
		t.Errorf("status %+v", s)
	}
}

func TestBadChangeStopsAtTheCanaryAndGoesBack(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 4, 10, "v1")
	w.start(policy(t, fleetPolicy), daemonSet("v1"))
	w.bad = func(revision, _ string) string {
		if revision == "v2" {
			return "container agent restarts (exit 1)"
		}
		return ""
	}
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "revision v2 failed on")
	w.expect(t, v1alpha1.PhaseRolledBack, "container agent restarts (exit 1)")
	if n := len(w.given["v2"]); n != 3 || w.on("v1") != 120 {
		t.Fatalf("%d nodes were given v2, and %d have v1", n, w.on("v1"))
	}
	w.pass(time.Hour)
	if w.on("v1") != 120 || w.given["v2"][w.names()[0]] > 1 {
		t.Fatalf("it was tried again by itself")
	}
	w.bad = func(string, string) string { return "" }
	w.update("v3")
	w.pass(20 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "v3")
}

func TestDeadNodesHoldUpNobody(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 4, 10, "v1")
	w.start(policy(t, strings.Replace(fleetPolicy, "failure:", "nodeFaults: {max: 30%}\nfailure:", 1)), daemonSet("v1"))
	for _, name := range w.names() {
		if strings.HasPrefix(name, "z1-r2") || strings.HasSuffix(name, "r0-07") { // a rack without power, and a node in three racks
			w.fault(name, "node does not answer", true)
		}
	}
	w.pass(time.Hour)
	w.update("v2")
	w.pass(time.Hour)
	// The racks with one dead node are at their limit: nobody else goes down there.
	w.expect(t, v1alpha1.PhaseComplete, "80 of 120 nodes have revision v2")
	if n := w.on("v2"); n != 80 {
		t.Fatalf("%d nodes have v2", n)
	}
	for _, name := range w.names() {
		if w.nodes[name].fault != "" {
			w.fault(name, "", false)
		}
	}
	w.pass(time.Hour)
	if n := w.on("v2"); n != 120 {
		t.Fatalf("%d nodes have v2 after all came back", n)
	}
}

func TestChangeThatKillsItsNodesIsToldFromAPowerLoss(t *testing.T) {
	deadly := func(w *world) {
		for _, name := range w.names() {
			if m := w.nodes[name]; m.daemon.Revision == "v2" && m.fault == "" && m.daemon.Available && w.now.Sub(m.daemon.Since) > 40*time.Second {
				w.fault(name, "node does not answer", true)
			}
		}
	}
	t.Run("kills", func(t *testing.T) {
		w := newWorld()
		w.addFleet(3, 4, 10, "v1")
		w.start(policy(t, fleetPolicy), daemonSet("v1"))
		w.update("v2")
		for range 180 {
			w.pass(time.Second)
			deadly(w)
		}
		w.expect(t, v1alpha1.PhaseRolledBack, "changed nodes did, 0 of 117 others")
		if n := len(w.given["v2"]); n != 3 {
			t.Errorf("%d nodes were given v2", n)
		}
	})
	t.Run("power", func(t *testing.T) {
		w := newWorld()
		w.addFleet(3, 4, 10, "v1")
		w.start(policy(t, strings.Replace(fleetPolicy, "count: 3", "count: 30", 1)), daemonSet("v1"))
		w.update("v2")
		w.pass(30 * time.Second)
		changed := 0
		for _, name := range w.names() {
			if strings.HasPrefix(name, "z1-r2") {
				if w.nodes[name].daemon.Revision == "v2" {
					changed++
				}
				w.fault(name, "node does not answer", true)
			}
		}
		if changed < 2 {
			t.Fatalf("only %d nodes of the rack were changed: the test shows nothing", changed)
		}
		w.pass(10 * time.Minute)
		if phase, message := w.course.Phase(); phase == v1alpha1.PhaseRolledBack || phase == v1alpha1.PhaseHalted {
			t.Errorf("%s: %s", phase, message)
		}
	})
}

// A ramp begins with one node, and doubles as long as what it has reached works.
func TestARampGrowsWhileAllIsWell(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: all, nodes: {}, ramp: {}, soak: 1m}]\nfailure: {min: 2, max: 0, startDeadline: 1m, then: Rollback}"), dsWith("v1", 20))
	w.bad = func(revision, node string) string {
		if revision == "v2" && w.given["v2"][node] > 0 && len(w.given["v2"]) > 7 {
			return "it does not bear so many"
		}
		return ""
	}
	w.update("v2")
	for _, want := range []struct {
		step  string
		nodes int
	}{{"all/1", 1}, {"all/2", 3}, {"all/3", 7}} {
		w.pass(30 * time.Second)
		if step, n := w.course.Status().Step, w.on("v2"); step != want.step || n != want.nodes {
			t.Fatalf("step %s with %d nodes, want %s with %d", step, n, want.step, want.nodes)
		}
		w.pass(40 * time.Second)
	}
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseRolledBack, "it does not bear so many")
	if n := len(w.given["v2"]); n > 15 {
		t.Errorf("%d nodes were given v2, want no more than the first four steps", n)
	}
}
