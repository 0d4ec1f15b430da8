package course

import (
	"fmt"
	"testing"
	"time"
)

// A revision that takes nodes in every rack away costs no look at all nodes for each rack.
func TestFewPlacesAreLookedAt(t *testing.T) {
	const racks = 5 * mostHits
	w := newWorld()
	w.addFleet(1, racks, 3, "v1")
	w.start(policy(t, "{domains: [{key: rack, maxUnavailable: 100%}], waves: [{name: all, percent: 100, maxUnavailable: 100%, soak: 1h}], failure: {max: 100%}}"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	for r := range racks {
		for i := range 2 {
			w.fault(fmt.Sprintf("z0-r%d-%02d", r, i), "it does not answer", true)
		}
	}
	if fallen := len(w.course.recent.changed); fallen != 2*racks {
		t.Fatalf("%d nodes fell after their change", fallen)
	}
	if n := len(w.course.hits(&lost{})); n != mostHits {
		t.Errorf("%d places are looked at, want %d", n, mostHits)
	}
}
