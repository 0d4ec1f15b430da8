package rollout

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

func approved(revision, step string, change int64) *v1alpha1.StepApproval {
	return &v1alpha1.StepApproval{Revision: revision, Digest: "sha256:" + revision, Step: step, Change: change}
}

// An approval that names no change is for the one that is under way when it is written. It stays for that whatever is
// written with it later, by clients that know changes and by those that do not.
func TestAnApprovalNamesItsChange(t *testing.T) {
	failed := []v1alpha1.FailedRevision{{Revision: "b", Retries: 1}}
	retry := &v1alpha1.Retry{Revision: "b", Digest: "sha256:b", Count: 2}
	for name, c := range map[string]struct {
		old, written *v1alpha1.StepApproval
		retry        *v1alpha1.Retry
		want         int64
		warns        bool
	}{
		"the first":           {nil, approved("b", "canary", 0), nil, 5, false},
		"of another step":     {approved("b", "canary", 5), approved("b", "All", 0), nil, 5, false},
		"of another revision": {approved("a", "canary", 3), approved("b", "canary", 0), nil, 5, false},
		"a patch of the revision that leaves a number": {approved("a", "canary", 3), approved("b", "canary", 3), nil, 5, false},
		"with a number":                                 {approved("b", "canary", 3), approved("b", "canary", 5), nil, 5, false},
		"with an old number":                            {approved("a", "canary", 4), approved("b", "canary", 3), nil, 3, true},
		"the same, in a later change":                   {approved("b", "canary", 3), approved("b", "canary", 3), nil, 3, true},
		"the same, by who knows no changes":             {approved("b", "canary", 3), approved("b", "canary", 0), nil, 3, true},
		"one of before changes had numbers":             {approved("b", "canary", 0), approved("b", "canary", 0), nil, 0, true},
		"of a revision that is not the target":          {nil, approved("c", "canary", 0), nil, 5, false},
		"with a retry":                                  {approved("b", "canary", 5), approved("b", "All", 0), retry, 6, false},
		"of before the retry":                           {approved("b", "canary", 5), approved("b", "canary", 5), retry, 5, true},
		"with a retry that has begun, and failed again": {nil, approved("b", "All", 0), &v1alpha1.Retry{Revision: "b", Digest: "sha256:b", Count: 1}, 5, false},
	} {
		r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{TargetRevision: "b", TargetDigest: "sha256:b", Change: 5}}
		if c.retry != nil {
			r.Status.FailedRevisions = failed
		}
		old := r.DeepCopy()
		old.Spec.Approved, r.Spec.Approved, r.Spec.Retry = c.old, c.written, c.retry
		nameChange(t.Context(), r, old)
		if got := r.Spec.Approved.Change; got != c.want {
			t.Errorf("%s: it is for change %d, want %d", name, got, c.want)
		}
		if got := voids(r); (len(got) > 0) != c.warns || c.warns && !strings.Contains(got[0], "approves nothing") {
			t.Errorf("%s: it warns %q", name, got)
		}
	}
	r := &v1alpha1.DaemonSetRollout{Spec: v1alpha1.DaemonSetRolloutSpec{Approved: approved("b", "canary", 3)}}
	old := r.DeepCopy()
	old.Spec.Approved = nil
	r.Spec.Approved = nil
	nameChange(t.Context(), r, old)
	if r.Spec.Approved != nil || len(voids(r)) > 0 {
		t.Error("an approval that was taken back is there")
	}
}

// A write that leaves all as it is, but for a number that its client does not know, is none.
func TestAWriteWithoutTheNumberIsNone(t *testing.T) {
	old := &v1alpha1.DaemonSetRollout{Spec: v1alpha1.DaemonSetRolloutSpec{Approved: approved("b", "canary", 3)}}
	old.Generation = 7
	r := old.DeepCopy()
	r.Generation, r.Spec.Approved.Change = 8, 0
	if nameChange(t.Context(), r, old); r.Generation != 7 {
		t.Errorf("it has generation %d", r.Generation)
	}
	r = old.DeepCopy()
	r.Generation, r.Spec.Paused, r.Spec.Approved.Change = 8, true, 0
	if nameChange(t.Context(), r, old); r.Generation != 8 || r.Spec.Approved.Change != 3 {
		t.Errorf("a pause has generation %d, and the approval is for change %d", r.Generation, r.Spec.Approved.Change)
	}
}
