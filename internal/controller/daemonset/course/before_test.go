package course

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// What a node was like before its change is known to a process that starts later: the pod
// that came says it.
func TestWhatANodeWasLikeOutlivesARestart(t *testing.T) {
	const bad = "z0-r0-01"
	for name, test := range map[string]struct {
		before func(d *standing.Daemon)
		after  func(d *standing.Daemon)
		phase  v1alpha1.Phase
		words  string
	}{
		"broken before": {
			func(d *standing.Daemon) { d.Available, d.Since, d.Trouble = false, time.Time{}, "no such device" },
			func(d *standing.Daemon) { d.Restarts, d.Trouble = 5, "no such device" },
			v1alpha1.PhaseComplete, "9 of 10 nodes have revision v2; 1 are out of order",
		},
		"well before": {
			func(*standing.Daemon) {},
			func(d *standing.Daemon) { d.Restarts, d.Trouble = 5, "no such device" },
			v1alpha1.PhaseHalted, "z0-r0-01: 5 restarts: no such device",
		},
		"no room, and had one": {
			func(*standing.Daemon) {},
			func(d *standing.Daemon) { d.Bound, d.NoRoom = time.Time{}, "cpu short" },
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

// Between two daemons no pod says what the one before was like: the rollout's status does.
func TestWhatANodeWasLikeOutlivesARestartBetweenTwoDaemons(t *testing.T) {
	for name, test := range map[string]struct {
		before, after func(d *standing.Daemon)
		phase         v1alpha1.Phase
		words         string
	}{
		"refused": {
			func(*standing.Daemon) {},
			func(d *standing.Daemon) {
				*d = standing.Daemon{Refused: "the API refuses its pod: quota", RefusedOf: "v2", Held: true}
			},
			v1alpha1.PhaseHalted, "the API refuses its pod: quota",
		},
		"no room, and had one": {
			func(*standing.Daemon) {},
			func(d *standing.Daemon) { d.NoRoom = "cpu short" },
			v1alpha1.PhaseHalted, "there is no room for it: cpu short",
		},
		"broken before": {
			func(d *standing.Daemon) { d.Available, d.Since = false, time.Time{} },
			func(d *standing.Daemon) { d.Restarts, d.Trouble = 5, "no such device" },
			v1alpha1.PhaseProgressing, "step rest: 0 of 10 nodes done",
		},
	} {
		for _, ended := range []bool{false, true} {
			for _, restarts := range []int{0, 1, 2} {
				w := newWorld()
				w.addFleet(1, 1, 10, "v1")
				const one = "z0-r0-00"
				test.before(&w.nodes[one].daemon)
				w.tell(one)
				w.start(policy(t, "failure: {max: 0}"), daemonSet("v1"))
				w.update("v2")
				if p := w.take(1); len(p) != 1 || p[0].Node != one {
					t.Fatalf("%s: %+v", name, p)
				}
				m := w.nodes[one]
				m.daemon = standing.Daemon{Ended: ended}
				w.tell(one)
				for range restarts {
					w.again()
				}
				if p := w.take(10); len(p) > 0 {
					t.Errorf("%s, %d restarts: %d more are changed than the limit allows", name, restarts, len(p))
				}
				m.daemon = standing.Daemon{}
				w.create(one) // with what it says of the one before
				test.after(&m.daemon)
				w.tell(one)
				w.now = w.now.Add(Lasting)
				tick(w.course, w.now)
				if got, message := w.course.Phase(); got != test.phase || !strings.Contains(message, test.words) {
					t.Errorf("%s, ended %t, %d restarts: %s: %s", name, ended, restarts, got, message)
				}
			}
		}
	}
}

// The status names no more nodes than it has room for, and none that has its daemon.
func TestStatusNamesFewNodesBetweenTwoDaemons(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 300, "v1")
	w.start(policy(t, "waves: [{name: all, percent: 100, maxUnavailable: 100%, soak: 30s}]"), daemonSet("v1"))
	w.update("v2")
	for _, p := range w.take(300) {
		w.nodes[p.Node].daemon = standing.Daemon{}
		w.tell(p.Node)
	}
	if s := w.course.Status().Replacing; s == nil || len(s.Available) != 200 || len(s.Unavailable) != 0 {
		t.Errorf("named are %+v", s)
	}
	w.pass(10 * time.Second)
	if s := w.course.Status(); s.Phase != v1alpha1.PhaseSoaking || s.Replacing != nil {
		t.Errorf("%s: named are %+v", s.Phase, s.Replacing)
	}
}

// Nodes that the target leaves out are not between two daemons: they must not take the room of those that are.
func TestStatusNamesNoNodeThatGetsNoOtherDaemon(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 300, "v1")
	const stays = "z0-r0-99" // the last by name
	w.rules["v2"] = func(name string) bool { return name == stays }
	w.start(policy(t, "waves: [{name: all, percent: 100, maxUnavailable: 100%, soak: 30s}]"), daemonSet("v1"))
	w.update("v2")
	for _, p := range w.take(300) {
		w.nodes[p.Node].daemon = standing.Daemon{}
		w.tell(p.Node)
	}
	if w.on("v1") > 0 {
		t.Fatalf("%d nodes have not begun", w.on("v1"))
	}
	if s := w.course.Status().Replacing; s == nil || !slices.Equal(s.Available, []string{stays}) ||
		len(s.Unavailable) > 0 {
		t.Errorf("named are %+v", s)
	}
}

// A controller may die before the status names whose daemon it took. The pod that came in its place says it.
func TestATakenNodeCountsAlsoWhereTheStatusDoesNotSaySo(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 4, "v1")
	w.start(policy(t, "failure: {min: 2}\nnodeFaults: {max: 50%}"), dsWith("v1", 1))
	w.update("v2")
	unsaid := w.course.Status()
	taken := w.take(1)[0]
	w.begin(taken)
	w.act(0)
	w.fault(taken.Node, "disk pressure", false)
	w.againFrom(unsaid, w.policy, Followed, "")
	if got := w.take(10); len(got) > 0 {
		t.Errorf("%+v begins, and %s is down by our doing", got, taken.Node)
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
	m.daemon.Before = standing.WasNotAvailable
	w.tell(lost)
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}, maxUnavailable: 1}]\nfailure: {max: 0}"), daemonSet("v1"))
	w.starts = 20 * time.Second
	w.update("v2")
	w.pass(time.Second)
	for _, restart := range []bool{false, true} {
		if restart {
			w.again()
		}
		m.daemon, m.ready = standing.Daemon{}, time.Time{} // somebody deletes it before its turn
		w.tell(lost)
		if was := w.course.Before(lost); was == standing.WasNotAvailable {
			t.Errorf("restart %t: the pod that comes says that the one before was %s", restart, was)
		}
		m.daemon = standing.Daemon{Revision: "v1", Available: true, Since: w.now, Made: w.now, Bound: w.now,
			Before: standing.WasNotAvailable}
		w.tell(lost)
	}
}
