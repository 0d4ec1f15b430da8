package course

import (
	"slices"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// joining is a fleet of which v1 selects the twenty nodes of zone z0, and v2 three of z1 as well.
func joining(t *testing.T) *world {
	w := newWorld()
	w.addFleet(1, 1, 20, "v1")
	w.rules["v1"] = func(node string) bool { return node < "z1" }
	for _, name := range []string{"z1-a", "z1-b", "z1-c"} {
		w.addNode(name, map[string]string{"zone": "z1"}, "")
	}
	w.start(policy(t, "waves: [{name: first, nodes: {matchLabels: {zone: z1}}}]\n"+
		"failure: {max: 50%, min: 2, startDeadline: 1m}"), dsWith("v1", 1))
	return w
}

// A node gets its first daemon by the change, which fails there, within the limit. Its pod is deleted, or the node made
// again, and by now the revision works there.
func TestAFirstDaemonThatFailedAndIsLostComesAgain(t *testing.T) {
	for _, how := range []string{"its pod is deleted", "the node is made again"} {
		w := joining(t)
		ill := true
		w.bad = func(revision, node string) string {
			if ill && revision == "v2" && node == "z1-a" {
				return "it restarts"
			}
			return ""
		}
		w.update("v2")
		w.pass(5 * time.Minute)
		ill = false
		if how == "its pod is deleted" {
			m := w.nodes["z1-a"]
			m.daemon, m.ready = standing.Daemon{}, time.Time{}
			w.tell("z1-a")
		} else {
			w.removeNode("z1-a")
			w.addNode("z1-a", map[string]string{"zone": "z1"}, "")
		}
		w.pass(2 * time.Hour)
		if n := w.on("v2"); n != 23 {
			p, m := w.course.Phase()
			v, why := w.course.Verdict("z1-a")
			t.Errorf("%s: two hours later v2 is on %d of 23; z1-a has %q: %s: %s; %s: %s", how, n,
				w.nodes["z1-a"].daemon.Revision, v, why, p, m)
		}
	}
}

// The API refuses the first daemon of a node for two minutes.
func TestAFirstDaemonThatWasRefusedIsTriedAgain(t *testing.T) {
	w := joining(t)
	w.update("v2")
	held, tries, refuses := time.Time{}, 0, w.now.Add(2*time.Minute)
	for range 7200 {
		w.now = w.now.Add(time.Second)
		tick(w.course, w.now)
		m := w.nodes["z1-a"]
		if m.daemon.Held && !held.After(w.now) {
			m.daemon.Held = false
			w.course.SetDaemon("z1-a", m.daemon)
		}
		for _, p := range w.take(1 << 20) {
			if p.Node == "z1-a" && w.now.Before(refuses) {
				tries++
				m.daemon.Refused, m.daemon.RefusedOf = "the API refuses its pod", p.To
				m.daemon.Held, held = true, w.now.Add(5*time.Second)
				w.course.SetDaemon("z1-a", m.daemon)
				continue
			}
			w.begin(p)
		}
		w.act(0)
	}
	if n := w.on("v2"); n != 23 {
		p, m := w.course.Phase()
		v, why := w.course.Verdict("z1-a")
		t.Errorf("two hours later, after %d tries, v2 is on %d of 23; z1-a: %s: %s; %s: %s", tries, n, v, why, p, m)
	}
}

// The first daemon of a node was let begin, and waits for its turn to be made. Then the rollout is paused, or its policy
// cannot be followed: it is not made before that is over.
func TestAFirstDaemonThatWaitsIsNotMadeInAPause(t *testing.T) {
	for how, stands := range map[string]func(w *world, yes bool){
		"it is paused": func(w *world, yes bool) { w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: yes}) },
		"its policy is lost": func(w *world, yes bool) {
			w.course.SetPolicy(nil, map[bool]Following{true: Lost, false: Followed}[yes], "")
		},
	} {
		w := joining(t)
		w.update("v2")
		if begun := w.take(1 << 20); len(begun) == 0 || begun[0].Node != "z1-a" || !w.course.Order("z1-a").Create {
			t.Fatalf("%v begin, z1-a: %+v", begun, w.course.Order("z1-a"))
		}
		w.course.Moved()
		stands(w, true)
		if o := w.course.Order("z1-a"); o.Create && o.Target != "v1" || !slices.Contains(w.course.Moved(), "z1-a") {
			t.Errorf("%s: the order of z1-a is %+v", how, o)
		}
		w.pass(time.Hour)
		if n := w.on("v2"); n != 0 {
			t.Errorf("%s: v2 is on %d nodes", how, n)
		}
		stands(w, false)
		w.pass(time.Hour)
		if n := w.on("v2"); n != 23 {
			t.Errorf("%s, and goes on: v2 is on %d of 23", how, n)
		}
	}
}

// The pods of a new DaemonSet end again and again on a node where the ones before did not work either: nobody is to
// blame. The node gets another one, also while the revision fails elsewhere, and so nothing is complete.
func TestAFirstDaemonThatEndsAgainAndAgainComesAgain(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 6, "")
	names := w.names()
	w.bad = func(revision, name string) string {
		if works := name == names[1] || name == names[2]; revision == "v1" && !works || revision == "v2" && name == names[1] {
			return "it crashes"
		}
		return ""
	}
	w.start(policy(t, "failure: {max: 90%}"), dsWith("v1", 6))
	w.pass(6 * time.Second)
	w.update("v2")
	w.pass(3 * time.Second)
	w.nodes[names[0]].unready()
	w.nodes[names[0]].daemon = standing.Daemon{Restarts: 3}
	w.tell(names[0])
	w.pass(10 * time.Minute)
	if w.course.Status().StableRevision != "" {
		t.Fatal("the first revision is complete")
	}
	if d := w.nodes[names[0]].daemon; d.Revision != "v2" || !d.Available {
		verdict, why := w.course.Verdict(names[0])
		t.Errorf("ten minutes later the node has %q; %s: %s", d.Revision, verdict, why)
	}
}
