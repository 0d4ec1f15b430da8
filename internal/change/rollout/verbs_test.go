package rollout

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestVerbsForARevisionThatHasMoved do nothing, and say so in plain words.
func TestVerbsForARevisionThatHasMoved(t *testing.T) {
	for name, of := range map[string]func(revision string) Verb{
		"approved":    func(revision string) Verb { return Approve(v1alpha1.AllSteps, revision) },
		"tried again": Retry,
		"aborted":     Abort,
	} {
		for revision, good := range map[string]bool{"": true, "new": true, "sha256:1": true, "seen": false} {
			r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{
				StableRevision: "old", TargetRevision: "new", TargetDigest: "sha256:1", Phase: v1alpha1.PhaseHalted, FailedRevisions: []v1alpha1.FailedRevision{{Revision: "new"}},
			}}
			before := r.DeepCopy()
			_, err := of(revision)(r)
			switch {
			case good && (err != nil || r.Spec == before.Spec):
				t.Errorf("%s, revision %q: the error is %v, the spec %+v", name, revision, err, r.Spec)
			case !good && (err == nil || err.Error() != "nothing is "+name+": the change is to revision new by now, not to seen" || r.Spec != before.Spec):
				t.Errorf("%s, revision %q: the error is %v, the spec %+v", name, revision, err, r.Spec)
			}
		}
	}
	for _, verb := range []Verb{Approve(v1alpha1.AllSteps, ""), Retry(""), Abort("")} {
		r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{
			StableRevision: "old", TargetRevision: "new", FailedRevisions: []v1alpha1.FailedRevision{{Revision: "new"}},
		}}
		if _, err := verb(r); err == nil || !strings.Contains(err.Error(), "no targetDigest yet") {
			t.Errorf("without a digest the error is %v", err)
		}
	}
	if _, err := Abort("seen")(&v1alpha1.DaemonSetRollout{}); err == nil || !strings.Contains(err.Error(), "revision (none) by now") {
		t.Errorf("without a change the error is %v", err)
	}
}
