package course

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

const inTheMorning = "waves: [{name: all, percent: 100, maxUnavailable: 1}]\nnodeFaults: {max: 50%}\n" +
	"windows: [{days: [Mon], from: \"09:00\", to: \"12:00\"}]"

// leap has time pass without anything that happens.
func (w *world) leap(d time.Duration) {
	w.now = w.now.Add(d)
	tick(w.course, w.now)
}

// down is how many nodes have no available daemon.
func (w *world) down() (n int) {
	for _, name := range w.names() {
		n += one(!w.nodes[name].daemon.Available)
	}
	return n
}

// A change is complete but for nodes that are out. When they come back their old daemons work: each is taken inside the
// window, and as many at a time as its step allows.
func TestNodesThatComeBackWaitForTheWindowAndTheirStepsLimit(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld() // a Monday, 10:00 UTC
		w.addFleet(1, 1, 20, "v1")
		w.start(policy(t, inTheMorning), dsWith("v1", 10))
		away := w.names()[:8]
		for _, n := range away {
			w.fault(n, "node does not answer", true)
		}
		w.pass(time.Minute)
		w.update("v2")
		w.pass(90 * time.Minute)
		w.expect(t, v1alpha1.PhaseComplete, "12 of 20")
		w.leap(5 * time.Hour) // 16:31
		for _, n := range away {
			m := w.nodes[n]
			m.fault, m.silent, m.since, m.ready = "", false, time.Time{}, time.Time{}
			m.daemon.Available, m.daemon.Since = true, w.now
			w.tell(n)
		}
		w.leap(time.Second)
		if restart {
			w.crash()
		}
		if p := w.take(100); len(p) > 0 {
			t.Errorf("at %s, outside of the window, %d working daemons are taken", w.now, len(p))
		}
		w.expect(t, v1alpha1.PhaseOutsideWindow, "8 nodes have another revision than v2; the next window opens at Mon")
		if _, why := w.course.Verdict(away[0]); !strings.Contains(why, "the next window opens at") {
			t.Errorf("%s waits: %s", away[0], why)
		}
		if at, ok := w.course.NextTick(); !ok || at.Hour() != 9 {
			t.Errorf("it looks again at %s, want when the window opens", at)
		}
		w.leap(7*24*time.Hour - 7*time.Hour) // Monday, 09:31
		for range 1800 {
			w.pass(time.Second)
			if n := w.down(); n > 1 {
				t.Fatalf("at %s, in a step with maxUnavailable 1, %d are down at once", w.now, n)
			}
		}
		w.expect(t, v1alpha1.PhaseComplete, "20 of 20")
	}
}

// A window that closes while nodes are behind is known beforehand: nothing else may happen until then.
func TestAWindowThatClosesOverNodesThatAreBehind(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, inTheMorning), dsWith("v1", 10))
	w.fault("z0-r0-00", "node does not answer", true)
	w.pass(time.Minute)
	w.update("v2")
	w.pass(90 * time.Minute) // 11:31
	w.expect(t, v1alpha1.PhaseComplete, "19 of 20")
	m := w.nodes["z0-r0-00"]
	m.fault, m.silent, m.since, m.ready = "", false, time.Time{}, time.Time{}
	m.daemon.Available, m.daemon.Since = true, w.now
	w.tell("z0-r0-00")
	w.leap(20 * time.Minute)
	w.expect(t, v1alpha1.PhaseProgressing, "1 node has another revision than v2")
	if at, ok := w.course.NextTick(); !ok || at.Hour() != 12 || at.Minute() != 0 {
		t.Errorf("it looks again at %s, want when the window closes", at)
	}
	w.leap(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseOutsideWindow, "the next window opens at Mon")
}

// One that is down anyway is made anew at once.
func TestABrokenDaemonThatComesBackWaitsForNoWindow(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.start(policy(t, inTheMorning), dsWith("v1", 10))
	w.fault("z0-r0-00", "node does not answer", true)
	w.pass(time.Minute)
	w.update("v2")
	w.pass(90 * time.Minute)
	w.expect(t, v1alpha1.PhaseComplete, "19 of 20")
	w.leap(5 * time.Hour)
	m := w.nodes["z0-r0-00"]
	m.fault, m.silent, m.since, m.ready, m.daemon.Trouble = "", false, time.Time{}, time.Time{}, "CrashLoopBackOff"
	w.tell("z0-r0-00")
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseComplete, "20 of 20")
}

// Somebody sets the template of before again, since the new one does harm. Who has it goes back at once, also under the
// next controller.
func TestAChangeThatIsUndoneWaitsForNoWindow(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld()
		w.addFleet(1, 1, 20, "v1")
		w.start(policy(t, inTheMorning), dsWith("v1", 5))
		w.pass(time.Minute)
		w.update("v2")
		for w.on("v2") < 6 {
			w.pass(time.Second)
		}
		w.leap(5 * time.Hour)
		w.update("v1")
		w.store()
		if restart {
			w.crash()
		}
		w.pass(30 * time.Minute)
		if n := w.on("v2"); n > 0 {
			t.Errorf("%d nodes still have v2", n)
		}
		w.expect(t, v1alpha1.PhaseComplete, "20 of 20")
	}
}
