package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// zero takes all nodes of a world away.
func (w *world) zero() {
	for _, name := range w.names() {
		w.removeNode(name)
	}
	w.pass(time.Minute)
	w.store()
}

// fill has so many nodes join.
func (w *world) fill(n int) {
	for i := range n {
		w.addNode(fmt.Sprintf("new-%02d", i), nil, "")
	}
}

// A pool is scaled to zero, and the daemon changed meanwhile. The nodes that come back go through the steps: a revision
// that fails reaches the canary alone, and goes back to what has run.
func TestAPoolThatComesBackFromZeroGoesThroughTheSteps(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, bad := range []bool{false, true} {
			w := newWorld()
			w.addFleet(1, 1, 10, "v1")
			w.start(policy(t, "waves: [{name: canary, count: 1, soak: 5m}]\nfailure: {startDeadline: 1m, then: Rollback}"), daemonSet("v1"))
			w.zero()
			w.expect(t, v1alpha1.PhaseComplete, "revision v1 selects no node")
			w.update("v2")
			w.pass(time.Hour)
			w.expect(t, v1alpha1.PhaseComplete, "revision v2 selects no node")
			w.store()
			if restart {
				w.crash()
			}
			w.bad = func(revision, _ string) string {
				if bad && revision == "v2" {
					return "it restarts"
				}
				return ""
			}
			w.fill(10)
			most := 0
			for range 240 {
				w.pass(time.Second)
				most = max(most, w.on("v2"))
			}
			if most != 1 {
				t.Errorf("restart %v, bad %v: while the canary soaks %d nodes have v2", restart, bad, most)
			}
			w.pass(time.Hour)
			if bad {
				w.expect(t, v1alpha1.PhaseRolledBack, "revision v2 ")
			} else {
				w.expect(t, v1alpha1.PhaseComplete, "10 of 10 nodes have revision v2")
			}
			if n := w.on("v2"); !bad && n != 10 || bad && n != 0 {
				t.Errorf("restart %v, bad %v: an hour later %d nodes have v2", restart, bad, n)
			}
		}
	}
}

// A change whose nodes all leave in the middle goes on where it was when they come back.
func TestAChangeWhoseNodesAllLeaveIsNotOver(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 1, approval: Manual}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(10 * time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	w.zero()
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "wave canary takes no node")
	w.fill(10)
	w.pass(time.Hour)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "step canary is complete")
	if n := w.on("v2"); n != 1 {
		t.Errorf("nobody approved, and %d nodes have v2", n)
	}
}

// What has never run anywhere is not stable: the first nodes of a new DaemonSet all get the newest revision.
func TestADaemonThatRanNowhereHasNoStableRevision(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld()
		w.start(policy(t, "waves: [{name: canary, count: 1, soak: 5m}]"), daemonSet("v1"))
		w.expect(t, v1alpha1.PhaseComplete, "revision v1 selects no node")
		w.update("v2")
		w.expect(t, v1alpha1.PhaseComplete, "revision v2 selects no node")
		w.store()
		if restart {
			w.crash()
		}
		w.fill(10)
		w.pass(time.Minute)
		if n := w.on("v2"); n != 10 {
			t.Errorf("restart %v: %d of 10 nodes have the first revision that runs", restart, n)
		}
		w.pass(time.Hour)
		if s := w.course.Status(); s.StableRevision != "v2" {
			t.Errorf("restart %v: stable is %q", restart, s.StableRevision)
		}
	}
}
