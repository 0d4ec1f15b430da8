package admit

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestWrongPods: what a node was not to have when its pod was made, and nothing else.
func TestWrongPods(t *testing.T) {
	policy, now := policyOf(t), time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	changing := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", Step: "canary"}
	failed := changing.DeepCopy()
	failed.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "b", Time: metav1.NewTime(now)}}
	canary, _ := policy.StepNamed("canary")
	later, _ := policy.StepNamed("zones/x")
	for name, c := range map[string]struct {
		status *v1alpha1.DaemonSetRolloutStatus
		pod    Made
		wrong  bool
	}{
		"stable":                         {changing, Made{"a", now, later}, false},
		"the target in its step":         {changing, Made{"b", now, canary}, false},
		"the target before its step":     {changing, Made{"b", now, later}, true},
		"some other one":                 {changing, Made{"c", now, later}, true},
		"failed, and had its turn":       {failed, Made{"b", now.Add(-time.Minute), canary}, false},
		"failed, and was made after it":  {failed, Made{"b", now.Add(time.Minute), canary}, true},
		"failed, where it never was due": {failed, Made{"b", now.Add(-time.Minute), later}, true},
		"complete":                       {&v1alpha1.DaemonSetRolloutStatus{StableRevision: "b", TargetRevision: "b"}, Made{"a", now, later}, false},
		"a new DaemonSet":                {&v1alpha1.DaemonSetRolloutStatus{TargetRevision: "b"}, Made{"b", now, later}, false},
	} {
		got, err := IsWrong(c.status, policy, c.pod)
		if err != nil || got != c.wrong {
			t.Errorf("%s: wrong is %v (%v)", name, got, err)
		}
	}
	unknown := changing.DeepCopy()
	unknown.Step = "racks/1"
	_, err := IsWrong(unknown, policy, Made{"b", now, later})
	if err == nil {
		t.Error("a step that the policy does not have is no error")
	}
}
