package row

import (
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// An approval is of one template: another one that was made to have the same revision is not approved,
// not tried again, and not aborted by it.
func TestWhatPeopleWriteNamesOneTemplate(t *testing.T) {
	spec := v1alpha1.DaemonSetRolloutSpec{
		Paused:   true,
		Approved: &v1alpha1.StepApproval{Revision: "b", Digest: "sha256:1", Step: v1alpha1.AllSteps},
		Retry:    &v1alpha1.Retry{Revision: "b", Digest: "sha256:1", Count: 1},
		Abort:    &v1alpha1.Abort{Revision: "b", Digest: "sha256:1"},
	}
	if got := named(spec, "sha256:1"); got != spec {
		t.Errorf("of the template that it names is left %+v", got)
	}
	if got := named(spec, "sha256:2"); got != (v1alpha1.DaemonSetRolloutSpec{Paused: true}) {
		t.Errorf("of another template is left %+v", got)
	}
	if spec.Approved == nil {
		t.Error("what people wrote was changed")
	}
}

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
