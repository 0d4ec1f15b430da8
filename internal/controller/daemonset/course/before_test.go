package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// What a node was like before its change is known to a process that starts later: the pod
// that came says it.
func TestWhatANodeWasLikeOutlivesARestart(t *testing.T) {
	const bad = "z0-r0-01"
	for name, test := range map[string]struct {
		before func(d *Daemon)
		after  func(d *Daemon)
		phase  v1alpha1.Phase
		words  string
	}{
		"broken before": {
			func(d *Daemon) { d.Available, d.Since, d.Trouble = false, time.Time{}, "no such device" },
			func(d *Daemon) { d.Restarts, d.Trouble = 5, "no such device" },
			v1alpha1.PhaseComplete, "9 of 10 nodes have revision v2; 1 are out of order",
		},
		"well before": {
			func(*Daemon) {},
			func(d *Daemon) { d.Restarts, d.Trouble = 5, "no such device" },
			v1alpha1.PhaseHalted, "z0-r0-01: 5 restarts: no such device",
		},
		"no room, and had one": {
			func(*Daemon) {},
			func(d *Daemon) { d.Bound, d.NoRoom = time.Time{}, "cpu short" },
			v1alpha1.PhaseHalted, "z0-r0-01: there is no room for it: cpu short",
		},
	} {
		for _, restart := range []bool{false, true} {
			w := newWorld()
			w.addFleet(1, 1, 10, "v1")
			test.before(&w.nodes[bad].daemon)
			w.tell(bad)
			w.start(policy(t, "failure: {max: 0}"), daemonSet("v1"))
			w.starts = 20 * time.Second
			w.update("v2")
			w.nodes[bad].daemon.Since = w.nodes[bad].daemon.Since.Add(-time.Second)
			for w.nodes[bad].daemon.Revision != "v2" {
				w.pass(time.Second)
			}
			w.nodes[bad].ready = time.Time{}
			if restart {
				w.again()
			}
			test.after(&w.nodes[bad].daemon)
			w.tell(bad)
			w.pass(10 * time.Minute)
			if got, message := w.course.Phase(); got != test.phase {
				t.Errorf("%s, restart %t: %s: %s", name, restart, got, message)
				continue
			}
			w.expect(t, test.phase, test.words)
		}
	}
}

// Once it has soaked, what was before is over: what fails then is the revision's doing.
func TestWhatWasBeforeEndsWithTheSoak(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	const bad = "z0-r0-01"
	m := w.nodes[bad]
	m.daemon.Available, m.daemon.Since = false, time.Time{}
	w.tell(bad)
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}, soak: 30s, approval: Manual}]\nfailure: {max: 0}"), daemonSet("v1"))
	w.update("v2")
	w.pass(2 * time.Minute)
	m.daemon.Available, m.daemon.Since, m.daemon.Restarts = false, time.Time{}, 7
	w.tell(bad)
	w.expect(t, v1alpha1.PhaseHalted, "failed on 1 of 5 nodes")
}

// A pod says for ever what it replaced. Of a pod of an earlier revision that is no excuse
// for the target: it has been well since.
func TestWhatAnEarlierRevisionReplacedExcusesNothing(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 2, 5, "v1")
	const lost = "z0-r0-01"
	m := w.nodes[lost]
	m.daemon.Before = WasNotAvailable
	w.tell(lost)
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}, maxUnavailable: 1}]\nfailure: {max: 0}"), daemonSet("v1"))
	w.starts = 20 * time.Second
	w.update("v2")
	w.pass(time.Second)
	for _, restart := range []bool{false, true} {
		if restart {
			w.again()
		}
		m.daemon, m.ready = Daemon{}, time.Time{} // somebody deletes it before its turn
		w.tell(lost)
		if was := w.course.Before(lost); was == WasNotAvailable {
			t.Errorf("restart %t: the pod that comes says that the one before was %s", restart, was)
		}
		m.daemon = Daemon{Revision: "v1", Available: true, Since: w.now, Made: w.now, Bound: w.now, Before: WasNotAvailable}
		w.tell(lost)
	}
}
