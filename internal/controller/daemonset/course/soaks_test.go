package course

import (
	"testing"
	"time"
)

// A policy is edited while no controller runs, so that another step is under way than the status says. The next
// controller's clock is off. A soak is as long.
func TestSoaksLastByAnyClockAlsoWhereThePolicyWasEditedMeanwhile(t *testing.T) {
	const text = ", nodes: {matchLabels: {fleet: canary}}, soak: 30m, maxUnavailable: 2}]"
	for _, name := range []string{"canary", "first"} {
		for _, off := range offs {
			w := newWorld()
			w.addFleet(1, 1, 8, "v1")
			w.addNode("c1", map[string]string{"fleet": "canary"}, "v1")
			w.addNode("c2", map[string]string{"fleet": "canary"}, "v1")
			w.start(policy(t, "waves: [{name: canary"+text), dsWith("v1", 5))
			w.pass(time.Minute)
			w.update("v2")
			w.pass(10 * time.Minute)
			w.now = w.now.Add(off)
			for _, m := range w.nodes { // as in another
				if m.daemon.Since.After(w.now) {
					m.daemon.Since = w.now
				}
			}
			w.policy = policy(t, "waves: [{name: "+name+text)
			w.againFrom(w.stored, w.policy, Followed, "")
			soaked := 10 * time.Minute
			for w.on("v2") <= 2 && soaked < 3*time.Hour {
				w.pass(10 * time.Second)
				soaked += 10 * time.Second
			}
			if soaked < 30*time.Minute {
				t.Errorf("wave %s, the clock is off by %s: the next step began after %s", name, off, soaked)
			}
		}
	}
}
