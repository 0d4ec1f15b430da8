package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A controller starts while no policy can be read. A trouble that a moment ends counts for nothing then either: it must
// last half a minute.
func TestATroubleMustLastAlsoWhileNoPolicyCanBeRead(t *testing.T) {
	for _, read := range []bool{true, false} {
		for _, kind := range []string{"certain", "refused"} {
			w := newWorld()
			w.addFleet(1, 1, 20, "v1")
			p := policy(t, "waves: [{name: canary, count: 1, soak: 10m}]\nfailure: {max: 0, min: 1, then: Rollback}")
			w.start(p, dsWith("v1", 1))
			w.update("v2")
			w.starts = 20 * time.Second
			w.pass(2 * time.Second)
			if w.on("v2") != 1 {
				t.Fatal("nobody has it")
			}
			if !read {
				w.againWith(nil, Lost, "policies cannot be read")
			}
			for _, name := range w.names() {
				m := w.nodes[name]
				if m.daemon.Revision != "v2" {
					continue
				}
				if kind == "certain" {
					m.daemon.Trouble, m.daemon.Certain = "ConfigMap agent is not there yet", true
				} else {
					m.daemon.Refused, m.daemon.RefusedOf = "a webhook restarts", "v2"
				}
				w.tell(name)
				w.now = w.now.Add(2 * time.Second)
				tick(w.course, w.now)
				w.course.SetPolicy(p, Followed, "")
				w.now = w.now.Add(2 * time.Second)
				tick(w.course, w.now)
				m.daemon.Trouble, m.daemon.Certain, m.daemon.Refused = "", false, ""
				w.tell(name)
			}
			w.pass(time.Minute)
			if phase, message := w.course.Phase(); phase != v1alpha1.PhaseSoaking {
				t.Errorf("the policy is read all the time: %t, %s: after a trouble of four seconds %s: %s",
					read, kind, phase, message)
			}
		}
	}
}

// A node on which the target fails, within the limit, is well again, and soaks. A controller starts while no policy can
// be read. What it knows of the failure is what the one before it knew.
func TestAFailureOutlivesARestartWhileNoPolicyCanBeRead(t *testing.T) {
	for _, read := range []bool{true, false} {
		w := newWorld()
		w.addFleet(1, 1, 20, "v1")
		p := policy(t, "waves: [{name: canary, count: 2, soak: 30m}]\n"+
			"failure: {max: 0, min: 2, startDeadline: 1m, then: Rollback}")
		w.start(p, dsWith("v1", 2))
		w.update("v2")
		w.starts = 90 * time.Second // later than it may take
		w.pass(3 * time.Second)
		second := ""
		for _, name := range w.names() {
			if m := w.nodes[name]; m.daemon.Revision == "v2" && second == "" {
				second = name
				m.ready = w.now.Add(5 * time.Second) // this one is in time
			}
		}
		w.pass(2 * time.Minute)
		before := w.course.state.failures.Count()
		w.expect(t, v1alpha1.PhaseSoaking, "")
		if before != 1 {
			t.Fatalf("%d failures", before)
		}
		if read {
			w.crash()
		} else {
			w.againFrom(w.stored, nil, Lost, "policies cannot be read")
			w.now = w.now.Add(time.Second)
			tick(w.course, w.now)
			w.course.SetPolicy(p, Followed, "")
		}
		if n := w.course.state.failures.Count(); n != before {
			t.Errorf("the policy is read all the time: %t: %d failures were known, and %d are", read, before, n)
		}
		w.nodes[second].daemon.Restarts = 5
		w.tell(second)
		w.pass(time.Minute)
		if phase, message := w.course.Phase(); phase != v1alpha1.PhaseRolledBack {
			t.Errorf("the policy is read all the time: %t: both canaries have failed within half an hour: %s: %s",
				read, phase, message)
		}
	}
}
