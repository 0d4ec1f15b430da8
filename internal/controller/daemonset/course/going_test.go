package course

import (
	"strings"
	"testing"
	"time"
)

// A pod that is on its way out keeps its node in the fleet, also when the template that
// brought it is neither the target nor stable any more: until it is gone nobody else goes.
func TestAGoingPodCountsWhenTheTemplateHasGoneBack(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 4, "")
	only := func(zone string) func(string) bool {
		return func(node string) bool { return strings.HasPrefix(node, zone) }
	}
	w.rules["v1"] = only("z0")
	for _, name := range w.names() {
		if w.rules["v1"](name) {
			w.addNode(name, w.nodes[name].labels, "v1")
		}
	}
	ds := daemonSet("v1")
	w.start(policy(t, "waves: [{name: all, percent: 100, maxUnavailable: 100%, soak: 1h}]"), ds)
	w.update("v2")
	w.pass(time.Minute)
	if n := w.on("v2"); n != 8 {
		t.Fatalf("%d nodes have v2", n)
	}
	w.stops = 10 * time.Minute
	w.update("v1")
	going := func() (n int) {
		for _, m := range w.nodes {
			if m.daemon.Ending != "" {
				n++
			}
		}
		return n
	}
	most, twice := 0, time.Duration(0)
	for range 200 {
		w.pass(30 * time.Second)
		most = max(most, going())
		if going() > 0 {
			twice += 30 * time.Second
		}
	}
	if most != 1 || w.on("v2") > 0 || twice < 39*time.Minute {
		t.Errorf("%d were going at once, in %s; %d nodes have v2", most, twice, w.on("v2"))
	}
}
