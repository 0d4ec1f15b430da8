package contents

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// With maxSurge a second pod is made beside the old one, and reads the content of the revision that it is made for: the
// old pod reads its own until it goes, and a node whose turn has not come gets the stable content.
func TestASecondPodGetsTheContentItIsMadeFor(t *testing.T) {
	w := newWorld(t, soakingCanary(careful))
	w.surge = true
	w.tellSet()
	w.pass(20 * time.Minute)
	w.wantRuns(map[string]int{"good": 5})
	stable, beside := w.status().StableRevision, 0
	w.assigned = func(a *action.CreatePod) {
		old, second := w.pods[a.Node]
		if !second {
			return
		}
		beside++
		if w.reads(old.Revision) == w.reads(a.Revision) || a.Revision != w.status().TargetRevision {
			t.Errorf("beside a pod of %s, which reads %q, one of %s is made, which reads %q", old.Revision,
				w.reads(old.Revision), a.Revision, w.reads(a.Revision))
		}
	}
	w.write("second")
	w.pass(time.Minute)
	w.wantPhase(v1alpha1.PhaseSoaking, "canary")
	w.wantRuns(map[string]int{"good": 4, "second": 1})
	for node, p := range w.pods { // a node that waits for its turn
		if p.Revision == stable {
			w.book.Step(podGone(w, node))
			break
		}
	}
	w.settle()
	w.wantRuns(map[string]int{"good": 4, "second": 1})
	w.pass(time.Hour)
	w.wantPhase(complete, "5 of 5")
	w.wantRuns(map[string]int{"second": 5})
	if beside != 5 {
		t.Errorf("%d pods were made beside others, want one on each node", beside)
	}
	w.write("bad")
	w.pass(time.Hour)
	w.wantPhase(rolledBack, "container agent ends")
	w.wantRuns(map[string]int{"second": 5})
}

// An undo of the template keeps the content that is current, and goes in steps as any change.
func TestUndoKeepsTheContent(t *testing.T) {
	w := newWorld(t, soakingCanary(careful))
	w.pass(20 * time.Minute)
	w.edit()
	w.pass(time.Hour)
	w.write("second")
	w.pass(time.Hour)
	w.wantPhase(complete, "5 of 5")
	before := w.status().StableRevision
	w.template = 1
	w.edit()
	w.pass(time.Minute)
	w.wantPhase(v1alpha1.PhaseSoaking, "canary")
	w.wantRuns(map[string]int{"second": 5})
	undone := 0
	for _, p := range w.pods {
		if content.TemplateOf(p.Revision) == "t1" {
			undone++
		}
	}
	w.pass(time.Hour)
	w.wantPhase(complete, "5 of 5")
	w.wantRuns(map[string]int{"second": 5})
	want := content.Revision("t1", content.IDOf(before))
	if got := w.status().StableRevision; got != want || undone != 1 {
		t.Errorf("the stable revision is %s, want %s; %d pods had it in the canary", got, want, undone)
	}
}
