package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// largePolicy is what docs/safe-change.md walks through.
const largePolicy = `
waves:
- {name: canary, count: 3, spreadBy: zone, soak: 30s}
- {name: zones, each: zone, maxUnavailable: 10%, soak: 10s}
domains:
- {key: rack, maxUnavailable: 1}
failure: {max: 5%, min: 2, startDeadline: 1m, restarts: 2, then: Rollback}
`

// largeFleet is 5,000 nodes in 20 racks and 5 zones. At each change it sees that the rollout
// has no second node of a rack down, as far as these are in order by themselves.
func largeFleet(t *testing.T) *world {
	t.Helper()
	w := newWorld()
	racks := map[string][]string{}
	for i := range 5000 {
		name, rack := fmt.Sprintf("node-%04d", i), fmt.Sprint("r", i/5%20)
		w.addNode(name, map[string]string{"zone": fmt.Sprint("z", i%5), "rack": rack}, "v1")
		racks[rack] = append(racks[rack], name)
	}
	w.start(policy(t, largePolicy), daemonSet("v1"))
	w.check = func(p Permit) {
		rack := w.nodes[p.Node].labels["rack"]
		for _, name := range racks[rack] {
			if m := w.nodes[name]; name != p.Node && !p.Free && m.fault == "" && !m.daemon.Available {
				t.Fatalf("%s goes while %s of rack %s is down", p.Node, name, rack)
			}
		}
	}
	return w
}

// until lets time go by until the rollout is in a phase.
func (w *world) until(t *testing.T, phase v1alpha1.Phase, most time.Duration) (took time.Duration) {
	t.Helper()
	for begin := w.now; w.now.Sub(begin) < most; w.pass(time.Second) {
		if is, _ := w.course.Phase(); is == phase {
			return w.now.Sub(begin)
		}
	}
	is, message := w.course.Phase()
	t.Fatalf("after %s the rollout is %s: %s", most, is, message)
	return 0
}

func TestLargeFleetWithABadImage(t *testing.T) {
	w := largeFleet(t)
	w.bad = func(revision, _ string) string { return map[string]string{"v2": "it crashes"}[revision] }
	w.update("v2")
	w.until(t, v1alpha1.PhaseRolledBack, 5*time.Minute)
	if back := time.Minute; w.on("v1") < 5000 {
		w.pass(back)
		if w.on("v1") < 5000 {
			t.Errorf("%s after the limit was hit only %d nodes have v1", back, w.on("v1"))
		}
	}
	if n := len(w.given["v2"]); n != 3 {
		t.Errorf("%d nodes were given v2", n)
	}
	w.update("v3")
	w.until(t, v1alpha1.PhaseComplete, time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "5000 of 5000 nodes have revision v3")
}

func TestLargeFleetWithNodesThatAreDownAllAlong(t *testing.T) {
	w := largeFleet(t)
	for i := range 200 { // in one rack, whose other nodes stay for that
		w.fault(fmt.Sprintf("node-%04d", 35+i/5*100+i%5), "the node does not answer", true)
	}
	w.pass(11 * time.Minute) // so long that their silence is no news
	w.update("v2")
	w.until(t, v1alpha1.PhaseComplete, 2*time.Hour)
	if n := w.on("v2"); n != 4750 {
		t.Errorf("%d nodes have v2", n)
	}
	for _, name := range w.names() {
		if w.nodes[name].fault != "" {
			w.fault(name, "", false)
		}
	}
	w.pass(20 * time.Minute)
	if w.on("v2") != 5000 { // a rack's nodes go one after another
		t.Errorf("%d nodes have v2 after all came back", w.on("v2"))
	}
}

func TestLargeFleetToldWhoseFaultItIs(t *testing.T) {
	t.Run("the revision's", func(t *testing.T) {
		w := largeFleet(t)
		w.update("v2")
		for range 300 {
			w.pass(time.Second)
			for name := range w.given["v2"] {
				if m := w.nodes[name]; m.daemon.Revision == "v2" && m.fault == "" && m.daemon.Available && w.now.Sub(m.daemon.Since) > 20*time.Second {
					w.fault(name, "the node does not answer", true)
				}
			}
		}
		w.expect(t, v1alpha1.PhaseRolledBack, "stopped answering: ")
		if n := len(w.given["v2"]); n != 3 {
			t.Errorf("%d nodes were given v2", n)
		}
	})
	t.Run("the rack's", func(t *testing.T) {
		w := largeFleet(t)
		w.update("v2")
		for w.on("v2") < 1200 { // in the second zone
			w.pass(time.Second)
		}
		for _, name := range w.names() {
			if w.nodes[name].labels["rack"] == "r7" {
				w.fault(name, "the node does not answer", true)
			}
		}
		w.until(t, v1alpha1.PhaseComplete, time.Hour)
		w.expect(t, v1alpha1.PhaseComplete, "250 are out of order")
	})
}

// A rack that loses its power after all its nodes were changed is to blame, and not the
// revision: elsewhere nodes that have had it for as long are well. They are heard of one
// after another, and a few others fail by chance.
func TestARackThatIsLostAfterItsChange(t *testing.T) {
	for name, test := range map[string]struct {
		policy string
		zones  int // that are changed when it happens
		also   []string
		phase  v1alpha1.Phase
		failed int
	}{
		"in the last step":      {largePolicy, 3, nil, v1alpha1.PhaseProgressing, 0},
		"in the first":          {largePolicy, 1, nil, v1alpha1.PhaseProgressing, 0},
		"and two others":        {largePolicy, 3, []string{"z1-r1-03", "z0-r2-17"}, v1alpha1.PhaseProgressing, 2},
		"and many others":       {largePolicy, 3, twoInEach("z0-r0-", "z0-r1-", "z0-r2-", "z1-r0-", "z1-r1-", "z1-r2-", "z1-r3-", "z2-r0-", "z2-r1-", "z2-r2-"), v1alpha1.PhaseRolledBack, 0},
		"nobody knows of racks": {"waves: [{name: zones, each: zone, maxUnavailable: 10%, soak: 10s}]\nfailure: {min: 2, then: Rollback}", 3, nil, v1alpha1.PhaseRolledBack, 0},
		"rack by rack": {"waves: [{name: racks, each: rack, maxUnavailable: 50%, soak: 1m}]\ndomains: [{key: rack, maxUnavailable: 50%}]\nfailure: {min: 2, then: Rollback}",
			0, nil, v1alpha1.PhaseRolledBack, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.addFleet(4, 4, 25, "v1")
			w.start(policy(t, test.policy), daemonSet("v1"))
			w.update("v2")
			zone := max(test.zones-1, 0)
			rack := fmt.Sprintf("z%d-r3", zone)
			if test.zones == 0 {
				rack = "z0-r0"
			}
			lost := func() (out []string) {
				for _, name := range w.names() {
					if w.nodes[name].labels["rack"] == rack {
						out = append(out, name)
					}
				}
				return out
			}()
			for i := 0; i < 3600 && !all(lost, func(name string) bool { m := w.nodes[name]; return m.daemon.Revision == "v2" && m.daemon.Available }); i++ {
				w.pass(time.Second)
			}
			for _, name := range append(lost, test.also...) {
				w.fault(name, "the node does not answer", true)
				w.pass(time.Second)
			}
			w.pass(time.Minute)
			phase, message := w.course.Phase()
			moves := phase == v1alpha1.PhaseSoaking || phase == v1alpha1.PhaseWaitingForApproval
			if phase != test.phase && !(moves && test.phase == v1alpha1.PhaseProgressing) || test.phase == v1alpha1.PhaseProgressing && w.course.state.failures.Count() != test.failed {
				t.Errorf("%s: %s; %d nodes count as failed", phase, message, w.course.state.failures.Count())
			}
		})
	}
}

func all(names []string, is func(string) bool) bool {
	for _, name := range names {
		if !is(name) {
			return false
		}
	}
	return true
}

func twoInEach(racks ...string) (out []string) {
	for _, rack := range racks {
		out = append(out, rack+"05", rack+"11")
	}
	return out
}
