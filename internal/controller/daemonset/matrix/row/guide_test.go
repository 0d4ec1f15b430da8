package row

import (
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Of two revisions that as many pods have, each process takes the same one for stable.
func TestTheLikelyStableRevisionFollowsFromTheFacts(t *testing.T) {
	r := fleetRow(1)
	r.info.Revision = "newest"
	r.revisions = map[string]int{"newest": 9, "c": 1, "b": 2, "a": 2, "": 3}
	for range 100 { // in whatever order they are looked at
		if got := r.likelyStable(); got != "a" {
			t.Fatalf("likely stable is %q, want a", got)
		}
	}
}

// Nothing begins in a change that the API does not hold: who goes on would take it for the one before, which is approved.
func TestAStageIsOfOneChange(t *testing.T) {
	g := &guide{course: course.New()}
	s := g.course.Status()
	if !g.says(&s) {
		t.Fatal("a status is not of the stage that it tells of")
	}
	if s.Change++; g.says(&s) {
		t.Error("that of another change is of the same stage")
	}
}

// A status of our own that is seen before its answer is nobody else's.
func TestOurOwnStatusOverwritesNothing(t *testing.T) {
	was, is := &v1alpha1.DaemonSetRolloutStatus{Step: "canary"}, &v1alpha1.DaemonSetRolloutStatus{Step: "rest"}
	g := &guide{info: fact.Rollout{Status: was}, inFlight: true}
	if g.isOverwritten(is) || !g.isOverwritten(nil) {
		t.Error("while a write is in flight another status counts as overwritten, or a deleted one does not")
	}
	g.inFlight = false
	if !g.isOverwritten(is) || g.isOverwritten(was.DeepCopy()) {
		t.Error("without one another status does not count as overwritten, or the same does")
	}
}
