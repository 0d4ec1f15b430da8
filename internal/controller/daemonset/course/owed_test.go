package course

import (
	"slices"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Another change begins between the daemon that a change took and its next one, before the node has its turn in it. The
// stable revision, which the node is to have meanwhile, cannot be made there: with a limit of one the change would
// stand still for ever, for the node's turn comes last.
func TestANodeGetsWhatItWasTakenFor(t *testing.T) {
	for _, c := range []struct {
		about, refuses, unreadable, meanwhile string
		fails                                 bool
	}{
		{about: "the stable revision can be made", meanwhile: "v1"},
		{about: "it cannot", refuses: "v1", meanwhile: "v2"},
		{about: "nor can the one before be read", refuses: "v1", unreadable: "v2"},
		{about: "and the one before has failed", refuses: "v1", fails: true},
	} {
		w := newWorld()
		w.stops = 10 * time.Second
		w.addFleet(1, 2, 5, "v1")
		w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {rack: z0-r0}}}]\n"+
			"failure: {max: 0, min: 1, startDeadline: 1m, then: Halt}"), daemonSet("v1")) // 10% of 10: one at a time
		w.update("v2")
		taken := ""
		for taken == "" {
			w.now = w.now.Add(time.Second)
			tick(w.course, w.now)
			w.act(0)
			for _, p := range w.take(1) {
				w.begin(p)
				if w.nodes[p.Node].labels["rack"] != "z0-r0" {
					taken = p.Node
				}
			}
		}
		w.refuses, w.unreadable[c.unreadable] = c.refuses, true
		if c.fails {
			w.course.state.Add(v1alpha1.FailedRevision{Revision: "v2", Why: "crashes"})
		}
		w.update("v3")
		if keeps := slices.Contains(w.course.Makes(), "v2"); keeps != (c.unreadable == "" && !c.fails) {
			t.Errorf("%s: v2 is kept: %v", c.about, keeps)
		}
		w.pass(15 * time.Second)
		if is := w.nodes[taken].daemon.Revision; is != c.meanwhile {
			t.Errorf("%s: the node has %q meanwhile, want %q", c.about, is, c.meanwhile)
		}
		w.pass(20 * time.Minute)
		if phase, message := w.course.Phase(); (w.on("v3") == 10) != (c.meanwhile != "") {
			t.Errorf("%s: %d nodes have v3: %s: %s", c.about, w.on("v3"), phase, message)
		}
		if more := w.course.Makes(); c.meanwhile != "" && slices.Contains(more, "v2") {
			t.Errorf("%s: at last pods of %q may be made", c.about, more)
		}
	}
}
