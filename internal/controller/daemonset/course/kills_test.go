package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// killing has a revision kill each of its nodes ten seconds after its daemon is available there; gone is what becomes of
// a dead node that long after. It returns how many were killed.
func killing(t *testing.T, waves string, after time.Duration, gone func(w *world, name string)) (*world, int) {
	w := newWorld()
	w.addFleet(3, 1, 20, "v1")
	w.start(policy(t, waves+"failure: {max: 5%, min: 2, then: Rollback}"), dsWith("v1", 1))
	w.starts = 20 * time.Second
	w.pass(20 * time.Minute)
	w.update("v2")
	silent := map[string]time.Time{}
	for range 4 * 3600 {
		w.pass(time.Second)
		for _, name := range w.names() {
			m := w.nodes[name]
			switch at, is := silent[name]; {
			case is && m.fault != "" && !w.now.Before(at.Add(after)):
				gone(w, name)
			case !is && m.daemon.Revision == "v2" && m.daemon.Available && !w.now.Before(m.daemon.Since.Add(10*time.Second)):
				w.fault(name, "the node does not answer", true)
				silent[name] = w.now
			}
		}
	}
	return w, len(silent)
}

var killPolicies = []string{"", "waves: [{name: canary, count: 3, soak: 5m}, {name: zones, each: zone, soak: 1m}]\n"}

// A revision kills its nodes, one after the other, and the cloud's controller deletes each soon after it has fallen silent,
// as it does with machines that are gone. That is found out.
func TestKillsAreFoundWhereDeadNodesAreDeleted(t *testing.T) {
	for _, waves := range killPolicies {
		for _, after := range []time.Duration{time.Hour, 5 * time.Second} {
			w, killed := killing(t, waves, after, (*world).removeNode)
			if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
				t.Errorf("%q: dead nodes are deleted after %s: %d of 60 are killed; %s: %s",
					waves, after, killed, phase, message)
			}
		}
	}
}

// The same where each node restarts, and is back a while later.
func TestNodesThatRestartByTheRevisionAreFound(t *testing.T) {
	for _, waves := range killPolicies {
		for _, after := range []time.Duration{5 * time.Minute, 15 * time.Second} {
			w, killed := killing(t, waves, after, func(w *world, name string) { w.fault(name, "", false) })
			if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
				t.Errorf("%q: nodes are away for %s: %d of 60 have restarted; %s: %s", waves, after, killed, phase, message)
			}
		}
	}
}

// The same where each node is back at once, and waits for daemons of others there, or is cordoned: of such a fault
// nobody knows since when it is.
func TestNodesThatRestartAreFoundThoughTheyWaitThen(t *testing.T) {
	for _, waves := range killPolicies {
		w, killed := killing(t, waves, 15*time.Second, func(w *world, name string) {
			m := w.nodes[name]
			m.fault, m.silent, m.since = cordon, false, time.Time{}
			w.tell(name)
		})
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
			t.Errorf("%q: %d of 60 have restarted; %s: %s", waves, killed, phase, message)
		}
	}
}

// The same where another controller goes on after each deletion: the dead that nobody finds any more are in the status.
func TestKillsAreFoundThoughControllersFollowEachOther(t *testing.T) {
	for _, waves := range killPolicies {
		w, killed := killing(t, waves, 5*time.Second, func(w *world, name string) {
			w.removeNode(name)
			w.again()
		})
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
			t.Errorf("%q: %d of 60 are killed; %s: %s", waves, killed, phase, message)
		}
	}
}

// Nodes that died without the target are remembered too: what happens everywhere is not the target's doing, for the
// next controller either.
func TestDeathsOfOthersAreStored(t *testing.T) {
	w := newWorld()
	w.addFleet(3, 1, 20, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 3, soak: 20m}]\nfailure: {max: 5%, min: 2, then: Rollback}"),
		dsWith("v1", 3))
	w.update("v2")
	w.pass(5 * time.Minute)
	for _, of := range []struct {
		revision string
		some     int
	}{{"v1", 40}, {"v2", 2}} {
		for _, name := range w.names() {
			if of.some > 0 && w.nodes[name].daemon.Revision == of.revision {
				of.some--
				w.fault(name, "the node does not answer", true)
				w.removeNode(name)
				w.again()
			}
		}
	}
	f := w.course.Status().Failures
	if f == nil || len(f.Deleted) != 2 || f.OthersDeleted != 40 || !f.Deleted[0].Silent ||
		f.Deleted[0].Fault != "the node does not answer" {
		t.Errorf("stored: %+v, want two that had the target, and 40 others", f)
	}
	w.pass(11 * time.Minute)
	w.expect(t, v1alpha1.PhaseSoaking, "")
	if f := w.course.Status().Failures; f != nil {
		t.Errorf("stored when it counts no longer: %+v", f)
	}
}
