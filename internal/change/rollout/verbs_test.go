package rollout

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestVerbsForARevisionThatHasMoved do nothing, and say so in plain words.
func TestVerbsForARevisionThatHasMoved(t *testing.T) {
	for name, of := range map[string]func(revision string) Verb{
		"approved":    func(revision string) Verb { return Approve(v1alpha1.AllSteps, revision, 0) },
		"tried again": Retry,
		"aborted":     Abort,
	} {
		for revision, good := range map[string]bool{"": true, "new": true, "sha256:1": true, "seen": false} {
			r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{
				StableRevision: "old", TargetRevision: "new", TargetDigest: "sha256:1", Phase: v1alpha1.PhaseHalted, FailedRevisions: []v1alpha1.FailedRevision{{Revision: "new"}},
			}}
			r.Spec.Retry = &v1alpha1.Retry{Revision: "new", Digest: "sha256:1", Count: 1} // what has failed is not approved without
			before := *r
			_, err := of(revision)(r)
			switch {
			case good && (err != nil || r.Spec == before.Spec):
				t.Errorf("%s, revision %q: the error is %v, the spec %+v", name, revision, err, r.Spec)
			case !good && (err == nil || err.Error() != "nothing is "+name+": the change is to revision new by now, not to seen" || r.Spec != before.Spec):
				t.Errorf("%s, revision %q: the error is %v, the spec %+v", name, revision, err, r.Spec)
			}
		}
	}
	for _, verb := range []Verb{Approve(v1alpha1.AllSteps, "", 0), Retry(""), Abort("")} {
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

// An approval names the change that is under way. What has failed is approved once a retry is asked for, which is the
// next one: what is approved before that is void when it begins.
func TestAnApprovalNamesTheChange(t *testing.T) {
	r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{
		StableRevision: "old", TargetRevision: "new", TargetDigest: "sha256:1", Change: 4, Step: "canary",
		Phase: v1alpha1.PhaseWaitingForApproval,
	}}
	is := func(when string, change int64) {
		t.Helper()
		if _, err := Approve(v1alpha1.AllSteps, "", change)(r); err != nil || r.Spec.Approved.Change != change {
			t.Errorf("%s: the error is %v, and approved is %+v", when, err, r.Spec.Approved)
		}
	}
	is("while it waits", 4)
	r.Status.Phase, r.Status.FailedRevisions = v1alpha1.PhaseHalted, []v1alpha1.FailedRevision{{Revision: "new"}}
	if _, err := Approve(v1alpha1.AllSteps, "", 0)(r); err == nil || !strings.Contains(err.Error(), "retry it first") {
		t.Errorf("of what has failed the error is %v", err)
	}
	if _, err := Retry("")(r); err != nil {
		t.Fatal(err)
	}
	is("with a retry", 5)
	r.Status.Phase, r.Status.FailedRevisions, r.Status.Change = v1alpha1.PhaseProgressing, nil, 5
	is("while it is tried again", 5)
	if _, err := Approve("", "new", 4)(r); err == nil || !strings.Contains(err.Error(), "this is change 5 by now, not 4") {
		t.Errorf("for who has seen the change before the error is %v", err)
	}
}
