package admit

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// TestWrongPods: what a node was not to have when its pod was made, and nothing else.
func TestWrongPods(t *testing.T) {
	policy, now := policyOf(t), time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	changing := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", Step: "canary"}
	failed := changing.DeepCopy()
	failed.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "b", Time: metav1.NewTime(now)}}
	other := changing.DeepCopy()
	other.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "c", Time: metav1.NewTime(now)}}
	before := func(of string) *v1alpha1.DaemonSetRolloutStatus {
		s := changing.DeepCopy()
		s.TargetRevision, s.FailedRevisions = "b_y", []v1alpha1.FailedRevision{{Revision: of, Time: metav1.NewTime(now)}}
		return s
	}
	varied := func(stable, target string) *v1alpha1.DaemonSetRolloutStatus {
		return &v1alpha1.DaemonSetRolloutStatus{StableRevision: stable, TargetRevision: target, Step: "canary"}
	}
	canary, _ := policy.StepNamed("canary")
	later, _ := policy.StepNamed("zones/x")
	after := func(whole string) Made { return Made{whole, now.Add(time.Minute), canary} }
	for name, c := range map[string]struct {
		status *v1alpha1.DaemonSetRolloutStatus
		pod    Made
		wrong  bool
	}{
		"stable":                                       {changing, Made{"a", now, later}, false},
		"the target in its step":                       {changing, Made{"b", now, canary}, false},
		"the target before its step":                   {changing, Made{"b", now, later}, true},
		"what was the target once":                     {changing, Made{"c", now, later}, false},
		"another that failed before":                   {other, Made{"c", now.Add(time.Minute), later}, true},
		"another that failed later":                    {other, Made{"c", now.Add(-time.Minute), later}, false},
		"failed, and had its turn":                     {failed, Made{"b", now.Add(-time.Minute), canary}, false},
		"failed, and was made after it":                {failed, Made{"b", now.Add(time.Minute), canary}, true},
		"failed, where it never was due":               {failed, Made{"b", now.Add(-time.Minute), later}, true},
		"complete":                                     {&v1alpha1.DaemonSetRolloutStatus{StableRevision: "b", TargetRevision: "b"}, Made{"a", now, later}, false},
		"its template failed with other variants":      {before("b_x"), after("b_y"), false},
		"its variants failed":                          {before("b_x"), after("b_x"), true},
		"other variants, and nothing else":             {varied("a_x", "a_y"), Made{"a", now, later}, false},
		"of the stable template, without its variants": {varied("a_x", "b_x"), Made{"a", now, later}, false},
		"of the newest template, without its variants": {varied("a_x", "b_x"), Made{"b", now, later}, true},
		"of the newest template, with variants":        {varied("a_x", "b_x"), Made{"b_y", now, later}, false},
		"a new DaemonSet":                              {&v1alpha1.DaemonSetRolloutStatus{TargetRevision: "b"}, Made{"b", now, later}, false},
	} {
		got, err := IsWrong(c.status, policy, c.pod)
		if err != nil || got != c.wrong {
			t.Errorf("%s: wrong is %v (%v)", name, got, err)
		}
	}
	const x, y = ".aaaaaaaaaaaaaaaaaaaaaaaa", ".bbbbbbbbbbbbbbbbbbbbbbbb"
	done := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a" + x, TargetRevision: "a" + x}
	edited := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a" + x, TargetRevision: "a" + y, Step: "canary"}
	on := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "a" + x, Step: "canary"}
	off := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a" + x, TargetRevision: "b", Step: "canary"}
	plain := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a" + x, TargetRevision: "a", Step: "canary"}
	gone := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "a"}
	for name, c := range map[string]struct {
		status *v1alpha1.DaemonSetRolloutStatus
		pod    string
		wrong  [2]bool // in the step, and before it
	}{
		"complete, with its content":            {done, "a" + x, [2]bool{false, false}},
		"complete, without":                     {done, "a", [2]bool{true, true}},
		"complete, and left of another content": {done, "a" + y, [2]bool{false, false}},
		"edited, stable":                        {edited, "a" + x, [2]bool{false, false}},
		"edited, the target":                    {edited, "a" + y, [2]bool{false, true}},
		"edited, without":                       {edited, "a", [2]bool{true, true}},
		"turned on, not yet":                    {on, "a", [2]bool{false, false}},
		"turned on":                             {on, "a" + x, [2]bool{false, true}},
		"turned off, stable":                    {off, "a" + x, [2]bool{false, false}},
		"turned off, of an earlier content":     {off, "a" + y, [2]bool{false, false}},
		"turned off, with the stable template":  {off, "a", [2]bool{false, false}},
		"turned off, the target":                {off, "b", [2]bool{false, true}},
		"turned off alone, stable":              {plain, "a" + x, [2]bool{false, false}},
		"turned off alone, the target":          {plain, "a", [2]bool{false, true}},
		"off, and it keeps its copies":          {gone, "a" + x, [2]bool{false, false}},
	} {
		for i, at := range []rolloutpolicy.Step{canary, later} {
			got, err := IsWrong(c.status, policy, Made{named(c.status, c.pod), now, at})
			if err != nil || got != c.wrong[i] {
				t.Errorf("%s, step %d: wrong is %v (%v)", name, i, got, err)
			}
		}
	}
	unknown := changing.DeepCopy()
	unknown.Step = "racks/1"
	_, err := IsWrong(unknown, policy, Made{"b", now, later})
	if err == nil {
		t.Error("a step that the policy does not have is no error")
	}
}

// named is how the revision of a pod with these labels is called.
func named(s *v1alpha1.DaemonSetRolloutStatus, revision string) string {
	return Revision(s, map[string]string{content.RevisionLabel: revision,
		appsv1.ControllerRevisionHashLabelKey: content.TemplateOf(revision)})
}
