package course

import (
	"fmt"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/failures"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// The daemon does not come up on the way back, and somebody repairs such nodes: their objects are deleted, and come back
// with the same name. That does not free the limit.
func TestRepairedNodesUseUpTheLimit(t *testing.T) {
	for name, test := range map[string]struct {
		repairs bool
		away    time.Duration
		restart bool // of the controller, while the node is away
		most    int  // without a daemon in the end; the limit is 1
	}{
		"nobody repairs":        {false, 0, false, 1},
		"made again at once":    {true, 0, false, 1},
		"away for a restart":    {true, 0, true, 1},
		"away for five minutes": {true, 5 * time.Minute, false, 2}, // another one went meanwhile
	} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 1}, {name: all, percent: 100, soak: 24h}]\nfailure: {startDeadline: 1m}"), daemonSet("v1"))
		w.update("v2")
		w.pass(10 * time.Minute)
		w.bad = func(revision, _ string) string { return map[string]string{"v1": "its image is gone"}[revision] }
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
		for range 8 {
			w.pass(5 * time.Minute)
			for _, name := range w.names() {
				if m := w.nodes[name]; test.repairs && !m.daemon.Available {
					w.removeNode(name)
					w.pass(test.away)
					if test.restart {
						w.store()
						w.crash()
					}
					w.addNode(name, m.labels, "")
				}
			}
		}
		w.pass(5 * time.Minute)
		if n := w.downNodes(); n > test.most {
			t.Errorf("%s: %d of 10 nodes are without a daemon, want at most %d", name, n, test.most)
		}
	}
}

// What is remembered of nodes that are gone is bounded, in number and in time, and ends with an available daemon.
func TestFewAbsenteesAreRemembered(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 3, "v1")
	w.start(policy(t, "{}"), daemonSet("v1"))
	gone := func(name string) {
		w.addNode(name, nil, "v1")
		n := w.course.nodes[name]
		n.daemon.Available, n.change.taken = false, true
		w.removeNode(name)
	}
	for i := range standing.KeptAbsentees + 5 {
		gone(fmt.Sprint("gone-", i))
	}
	if n := len(w.course.absentees); n != standing.KeptAbsentees {
		t.Errorf("%d are remembered, want %d", n, standing.KeptAbsentees)
	}
	if n := len(w.course.Status().Replacing.Available); n != failures.Kept {
		t.Errorf("the status names %d, want %d", n, failures.Kept)
	}
	for name, want := range map[string]bool{"gone-4": false, "gone-5": true, "another": false} {
		w.addNode(name, nil, "")
		if w.course.nodes[name].change.taken != want {
			t.Errorf("%s came back, and counts as taken: %t", name, !want)
		}
	}
	w.pass(time.Minute)
	if w.course.nodes["gone-5"].change.taken {
		t.Error("a node counts as taken whose daemon is available again")
	}
	w.pass(standing.Absence)
	w.addNode("gone-6", nil, "")
	if w.course.nodes["gone-6"].change.taken || len(w.course.absentees) > 0 {
		t.Errorf("after %s %d are remembered", standing.Absence, len(w.course.absentees))
	}
	gone("too-long")
	w.pass(standing.Absence)
	if r := w.course.Status().Replacing; r != nil && len(r.Available) > 0 {
		t.Errorf("after %s the status names %s", standing.Absence, r.Available)
	}
}

// A node that the target broke, and that was deleted then, does not hold up the way back when it returns.
func TestWhatTheTargetBrokeDoesNotHoldUpTheWayBack(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 5, "v1")
	w.start(policy(t, "failure: {startDeadline: 1h, max: 100%}"), daemonSet("v1"))
	w.bad = func(revision, _ string) string { return map[string]string{"v2": "its image is gone"}[revision] }
	w.update("v2")
	w.pass(10 * time.Second)
	if n := w.on("v2"); n != 1 {
		t.Fatalf("%d nodes have v2, want 1", n)
	}
	for _, name := range w.names() {
		if w.nodes[name].daemon.Revision == "v2" {
			w.removeNode(name)
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
			w.addNode(name, nil, "")
			if w.course.nodes[name].change.taken {
				t.Errorf("%s counts as taken by the way back", name)
			}
			return
		}
	}
}

// A node that no revision wants when it is deleted is not remembered.
func TestANodeOutsideIsNoAbsentee(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 3, "v1")
	w.start(policy(t, "{}"), daemonSet("v1"))
	for name, remembered := range map[string]int{"z0-r0-00": 1, "z0-r0-01": 0} {
		n := w.course.nodes[name]
		n.daemon.Available, n.change.taken = false, true
		if remembered == 0 {
			n.chosen = standing.Chosen{}
		}
		w.course.absentees = nil
		w.removeNode(name)
		if got := len(w.course.absentees); got != remembered {
			t.Errorf("of %s %d are remembered, want %d", name, got, remembered)
		}
	}
}
