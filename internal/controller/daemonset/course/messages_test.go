package course

import (
	"strings"
	"testing"
	"time"
)

// A failure of an earlier step, within the limit, uses up the DaemonSet's limit, for which the next step waits. The message
// names it.
func TestTheMessageNamesTheFailureOfAnEarlierStep(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: first, nodes: {matchLabels: {zone: z0}}, maxUnavailable: 5}]\n"+
		"failure: {max: 50%, min: 5}"), dsWith("v1", 1))
	w.bad = func(revision, node string) string {
		if revision == "v2" && node == "z0-r0-03" {
			return "it restarts"
		}
		return ""
	}
	w.update("v2")
	w.pass(time.Hour)
	p, m := w.course.Phase()
	v, why := w.course.Verdict("z1-r0-04")
	if !strings.Contains(m, "z0-r0-03") {
		t.Errorf("the message does not name the node: %s: %s; v2 is on %d of 20; another node: %s: %s",
			p, m, w.on("v2"), v, why)
	}
}
