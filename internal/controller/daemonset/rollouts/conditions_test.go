package rollouts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestConditions(t *testing.T) {
	begin := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	others := metav1.Condition{Type: "example.com/Mine", Status: metav1.ConditionTrue, Reason: "Mine",
		LastTransitionTime: metav1.NewTime(begin)}
	all := []metav1.Condition{others}
	for i, c := range []struct {
		phase v1alpha1.Phase
		want  string // true conditions, and the hours since the beginning in which they and the others changed last
	}{
		{v1alpha1.PhaseProgressing, "Complete=False@0 WaitingForApproval=False@0 Waiting=False@0 Failed=False@0 " +
			"Reconciling=True@0 Stalled=False@0"},
		{v1alpha1.PhaseSoaking, "Complete=False@0 WaitingForApproval=False@0 Waiting=False@0 Failed=False@0 " +
			"Reconciling=True@0 Stalled=False@0"},
		{v1alpha1.PhaseWaitingForApproval, "Complete=False@0 WaitingForApproval=True@2 Waiting=True@2 Failed=False@0 " +
			"Reconciling=True@0 Stalled=False@0"},
		{v1alpha1.PhaseOutsideWindow, "Complete=False@0 WaitingForApproval=False@3 Waiting=True@2 Failed=False@0 " +
			"Reconciling=True@0 Stalled=False@0"},
		{v1alpha1.PhasePaused, "Complete=False@0 WaitingForApproval=False@3 Waiting=True@2 Failed=False@0 " +
			"Reconciling=True@0 Stalled=False@0"},
		{v1alpha1.PhaseHalted, "Complete=False@0 WaitingForApproval=False@3 Waiting=True@2 Failed=True@5 " +
			"Reconciling=False@5 Stalled=True@5"},
		{v1alpha1.PhaseRolledBack, "Complete=False@0 WaitingForApproval=False@3 Waiting=False@6 Failed=True@5 " +
			"Reconciling=False@5 Stalled=True@5"},
		{v1alpha1.PhaseComplete, "Complete=True@7 WaitingForApproval=False@3 Waiting=False@6 Failed=False@7 " +
			"Reconciling=False@5 Stalled=False@7"},
	} {
		s := &v1alpha1.DaemonSetRolloutStatus{Phase: c.phase, Message: "because", ObservedGeneration: int64(i)}
		all = Conditions(s, all, begin.Add(time.Duration(i)*time.Hour))
		if errs := metav1validation.ValidateConditions(all, field.NewPath("status", "conditions")); len(errs) > 0 {
			t.Errorf("%s: the API would refuse them: %v", c.phase, errs)
		}
		var got []string
		for _, is := range all[1:] {
			if is.Reason != string(c.phase) || is.Message != "because" || is.ObservedGeneration != int64(i) {
				t.Errorf("%s: %s says %s, %q of generation %d", c.phase, is.Type, is.Reason, is.Message,
					is.ObservedGeneration)
			}
			got = append(got, fmt.Sprintf("%s=%s@%d", is.Type, is.Status,
				int(is.LastTransitionTime.Sub(begin).Hours())))
		}
		if text := strings.Join(got, " "); text != c.want || all[0] != others {
			t.Errorf("%s: the conditions are\n%s beside %v, want\n%s", c.phase, text, all[0], c.want)
		}
	}
}

// TestImagesOfTheStableTemplate: the condition is of the target, also while nodes before their turn wait for others.
func TestImagesOfTheStableTemplate(t *testing.T) {
	const message = "nodes before their turn wait for the digests that the first of them gets"
	for of, want := range map[string]metav1.ConditionStatus{"new": metav1.ConditionTrue, "old": metav1.ConditionUnknown} {
		s := &v1alpha1.DaemonSetRolloutStatus{TargetRevision: "new_bbbbbbbbbb", Images: &v1alpha1.ImagesStatus{
			Message: message, Templates: []v1alpha1.PinnedTemplate{{Template: of}}}}
		got := meta.FindStatusCondition(Conditions(s, nil, time.Time{}), v1alpha1.RolloutImagesPinned)
		if got.Status != want {
			t.Errorf("where the digests of %s are known it is %+v, want %s", of, got, want)
		}
	}
}

// TestImagesPinned: the condition is there while the policy pins, and only then.
func TestImagesPinned(t *testing.T) {
	begin := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	var all []metav1.Condition
	for i, c := range []struct {
		images *v1alpha1.ImagesStatus
		want   string
	}{
		{nil, ""},
		{&v1alpha1.ImagesStatus{Message: "the first node is to find out their digests"}, "Unknown WaitingForFirstNode@1"},
		{&v1alpha1.ImagesStatus{Message: "all others wait for the digests that the first node gets"},
			"Unknown WaitingForFirstNode@1"},
		{&v1alpha1.ImagesStatus{}, "True Pinned@3"},
		{&v1alpha1.ImagesStatus{Message: "demo:v1 is taken as written: n1 knows no digest of its repository"},
			"False AsWritten@4"},
		{&v1alpha1.ImagesStatus{}, "True Pinned@5"},
		{nil, ""},
	} {
		s := &v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseComplete, ObservedGeneration: int64(i), Images: c.images}
		all = Conditions(s, all, begin.Add(time.Duration(i)*time.Hour))
		if errs := metav1validation.ValidateConditions(all, field.NewPath("status", "conditions")); len(errs) > 0 {
			t.Errorf("the API would refuse them: %v", errs)
		}
		got := ""
		for _, is := range all {
			if is.Type != v1alpha1.RolloutImagesPinned {
				continue
			}
			got = fmt.Sprintf("%s %s@%d", is.Status, is.Reason, int(is.LastTransitionTime.Sub(begin).Hours()))
			if is.Message != c.images.Message || is.ObservedGeneration != int64(i) {
				t.Errorf("%+v is said as %+v", c.images, is)
			}
		}
		if got != c.want {
			t.Errorf("%d: it is %q, want %q", i, got, c.want)
		}
	}
}
