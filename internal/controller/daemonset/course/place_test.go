package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The last step only takes daemons away. It ends by time alone, also while the change is paused.
func TestAPausedChangeEndsInItsTime(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 2, "v1")
	w.start(policy(t, "waves: [{name: all, percent: 100, soak: 1m}]"), dsWith("v1", 1))
	w.rules["v2"] = func(node string) bool { return node == "z0-r0-00" }
	w.update("v2")
	w.pass(10 * time.Second) // one after the other
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	for range 15 {
		if at, any := w.course.NextTick(); any {
			w.now = at
			tick(w.course, at)
		}
	}
	w.expect(t, v1alpha1.PhaseComplete, "1 of 1 node have revision v2")
}

// wavesOf has the waves begin with others, and the zones one after the other.
func wavesOf(t *testing.T, first string) string {
	t.Helper()
	return "waves: [" + first + "{name: zones, each: zone, soak: 10s, maxUnavailable: 2}]"
}

// An edit of the policy, or a restart, while the change is paused: nothing hides where the steps are from then on.
func TestStepsKeepTheirPlaceWhilePaused(t *testing.T) {
	const canary, pilot = "{name: canary, count: 2}, ", "{name: pilot, count: 3}, "
	for name, test := range map[string]struct {
		from, edited string
		step         string
		same         bool // since when it is under way
	}{
		"a soak is another":    {canary, "{name: canary, count: 2, soak: 1h}, ", "zones/z1", true},
		"a wave before it":     {canary, canary + pilot, "canary", false},
		"no wave before it":    {canary, "", "zones/z1", true},
		"another wave first":   {canary, pilot, "pilot", false},
		"a wave before is new": {"", canary, "canary", false},
	} {
		for _, restart := range []bool{false, true} {
			w := newWorld()
			w.addFleet(3, 1, 6, "v1")
			w.start(policy(t, wavesOf(t, test.from)), dsWith("v1", 2))
			w.update("v2")
			for w.course.Status().Step != "zones/z1" {
				w.pass(time.Second)
			}
			w.pass(3 * time.Second)
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
			since := w.course.Status().StepStarted.Time
			w.pass(time.Second)
			w.policy = policy(t, wavesOf(t, test.edited))
			if restart {
				w.againWith(w.policy, Followed, "")
			} else {
				w.course.SetPolicy(w.policy, Followed, "")
			}
			s := w.course.Status()
			if s.Step != test.step || s.StepStarted.Time.Equal(since) != test.same {
				t.Errorf("%s, restart %t: step %s is under way since %s, want %s; it was zones/z1 since %s", name, restart, s.Step, s.StepStarted, test.step, since)
			}
			if n := len(s.Steps); n < 3 || n > 5 {
				t.Errorf("%s, restart %t: the status names %d steps", name, restart, n)
			}
		}
	}
}

// What a restart has found is where the next edit goes on from.
func TestAnEditAfterARestartGoesOnFromWhereTheStepsAreNow(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 1, 6, "v1")
	w.start(policy(t, wavesOf(t, "{name: canary, count: 2}, ")), dsWith("v1", 2))
	w.update("v2")
	w.pass(time.Second)
	w.again()
	for w.course.Status().Step != "zones/z1" {
		w.pass(time.Second)
	}
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	w.course.SetPolicy(policy(t, wavesOf(t, "{name: canary, count: 2, soak: 1h}, ")), Followed, "")
	if s := w.course.Status(); s.Step != "zones/z1" || len(s.Steps) != 4 {
		t.Errorf("step %s is under way, of %d", s.Step, len(s.Steps))
	}
}

// The waves come in another order when the next controller starts: the one under way was the first, and none of the others
// had begun.
func TestWavesInAnotherOrderHaveNotBegun(t *testing.T) {
	const a, b, c = "{name: a, nodes: {matchLabels: {zone: z0}}, soak: 1h}", "{name: b, nodes: {matchLabels: {zone: z1}}, soak: 1h}",
		"{name: c, nodes: {matchLabels: {zone: z2}}, soak: 1h}"
	w := newWorld()
	w.addFleet(3, 1, 6, "v1")
	w.start(policy(t, "waves: ["+a+", "+b+", "+c+"]"), dsWith("v1", 2))
	w.update("v2")
	w.pass(time.Minute)
	w.policy = policy(t, "waves: ["+c+", "+b+", "+a+"]")
	w.againWith(w.policy, Followed, "")
	w.pass(5 * time.Minute)
	for _, name := range w.names() {
		if is := w.nodes[name].daemon.Revision == "v2"; is == (w.nodes[name].labels["zone"] == "z1") {
			t.Errorf("%s has v2: %t", name, is)
		}
	}
}

// A ramp goes on from its nodes, however its steps are made.
func TestARampKeepsItsPlaceWhilePaused(t *testing.T) {
	for edited, want := range map[string]string{
		"ramp: {from: 1}":            "all/3",
		"soak: 1h, ramp: {from: 1}":  "all/3",
		"ramp: {from: 7}":            "all/1", // which has as many as the three have had together
		"ramp: {from: 6}":            "all/2",
		"ramp: {from: 2, factor: 4}": "all/2",
	} {
		for _, restart := range []bool{false, true} {
			w := newWorld()
			w.addFleet(1, 1, 40, "v1")
			w.start(policy(t, "waves: [{name: first, count: 3}, {name: all, nodes: {}, ramp: {from: 1}}]"), dsWith("v1", 4))
			w.update("v2")
			for w.course.Status().Step != "all/3" {
				w.pass(time.Second)
			}
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
			p := policy(t, "waves: [{name: first, count: 3}, {name: all, nodes: {}, "+edited+"}]")
			if restart {
				w.againWith(p, Followed, "")
			} else {
				w.course.SetPolicy(p, Followed, "")
			}
			if s := w.course.Status(); s.Step != want {
				t.Errorf("%s, restart %t: step %s is under way, want %s", edited, restart, s.Step, want)
			}
		}
	}
}

// The first policy that can be read comes after the start.
func TestAPolicyThatIsReadAfterTheStart(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.ds = dsWith("v1", 1)
	tick(w.course, w.now)
	w.course.SetPolicy(nil, Lost, "it cannot be read")
	w.tellRules()
	w.course.Start(&v1alpha1.DaemonSetRolloutStatus{})
	w.update("v2")
	w.expect(t, v1alpha1.PhasePaused, "it cannot be read")
	w.course.SetPolicy(policy(t, "waves: [{name: canary, count: 1}, {name: all, percent: 100}]"), Followed, "")
	w.expect(t, v1alpha1.PhaseProgressing, "step canary")
}
