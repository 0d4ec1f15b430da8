package course

import (
	"testing"
	"time"
)

// The canary's daemons start again while no controller runs, and the next controller's clock is off. They soak from then.
func TestWhatStartsWhileNobodyLooksSoaks(t *testing.T) {
	for _, off := range offs {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		w.start(policy(t, "waves: [{name: canary, count: 2, soak: 30m, maxUnavailable: 2}]"), dsWith("v1", 5))
		w.pass(time.Minute)
		w.update("v2")
		w.pass(29 * time.Minute)
		for _, name := range w.names() { // by the API's clock, while the controller is away
			if m := w.nodes[name]; m.daemon.Revision == "v2" {
				m.daemon.Made, m.daemon.Bound, m.daemon.Since = w.now, w.now, w.now.Add(2*time.Second)
			}
		}
		w.now = w.now.Add(10 * time.Second)
		w.another(off)
		soaked := 8 * time.Second
		for w.on("v2") <= 2 && soaked < 3*time.Hour {
			w.pass(10 * time.Second)
			soaked += 10 * time.Second
		}
		if soaked < 30*time.Minute {
			t.Errorf("the clock of the next controller is off by %s: the next step began %s after the canary's pods were ready", off, soaked)
		}
	}
}
