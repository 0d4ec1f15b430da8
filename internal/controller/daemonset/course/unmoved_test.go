package course

import (
	"testing"
	"time"
)

// The API does not let the pod of one node go, and that pod does not work. It holds up no other.
func TestANodeThatIsNotMovedAndIsDownHoldsUpNoStep(t *testing.T) {
	for _, down := range []bool{false, true} {
		w := newWorld()
		w.addFleet(2, 2, 5, "v1")
		w.start(policy(t, "waves: [{name: first, nodes: {matchLabels: {zone: z0}}}]\n"+
			"domains: [{key: rack, maxUnavailable: 1}]\nfailure: {startDeadline: 1m}"), dsWith("v1", 3))
		name := "z0-r0-00"
		m := w.nodes[name]
		w.stuck = name
		if down {
			m.daemon.Available, m.daemon.Since = false, time.Time{}
		}
		w.tell(name)
		w.pass(time.Minute)
		w.update("v2")
		held, tries := time.Time{}, 0
		for range 3600 {
			w.now = w.now.Add(time.Second)
			tick(w.course, w.now)
			if m.daemon.Held && !held.After(w.now) {
				m.daemon.Held = false
				w.course.SetDaemon(name, m.daemon)
			}
			for _, p := range w.take(1 << 20) {
				if p.Node == name {
					tries++
					m.daemon.Held, held = true, w.now.Add(5*time.Second)
					w.course.SetDaemon(name, m.daemon)
					continue
				}
				w.begin(p)
			}
			w.act(0)
		}
		p, msg := w.course.Phase()
		v, why := w.course.Verdict(name)
		n := 0
		for o, m := range w.nodes {
			if o >= "z1" && m.daemon.Revision == "v2" {
				n++
			}
		}
		if n != 10 {
			t.Errorf("its pod is down: %t: after %d tries in an hour %d of 10 nodes elsewhere have v2; it is %s: %s; %s: %s",
				down, tries, n, v, why, p, msg)
		}
	}
}
