package course

import (
	"testing"
	"time"
)

// In the middle of a step all daemons are unready for a second, as when what their probes ask is away. They come back by
// themselves; until then they are not free to be taken.
func TestAMomentWithoutReadinessFreesNobody(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 5, 20, "v1")
	w.start(policy(t, "domains: [{key: rack, maxUnavailable: 1}]"), dsWith("v1", 1))
	w.update("v2")
	w.pass(3 * time.Second)
	for _, n := range w.names() {
		if m := w.nodes[n]; m.daemon.Available {
			m.daemon.Available, m.daemon.Since, m.ready = false, time.Time{}, w.now.Add(time.Second)
			w.tell(n)
		}
	}
	if n := len(w.take(1000)); n > 1 {
		t.Errorf("%d daemons that worked a moment ago are taken at once; one may be unavailable", n)
	}
}
