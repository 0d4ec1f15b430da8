package pod

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func budgetOf(allowed int32, edits ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 2}, Status: policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: 2, DisruptionsAllowed: allowed, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 3}}
	for _, edit := range edits {
		edit(b)
	}
	return b
}

func TestSpend(t *testing.T) {
	for name, c := range map[string]struct {
		budget *policyv1.PodDisruptionBudget
		reason metav1.StatusReason
		says   string
	}{
		"not looked at yet": {budgetOf(1, func(b *policyv1.PodDisruptionBudget) { b.Generation++ }), metav1.StatusReasonTooManyRequests,
			"The disruption budget b is still being processed by the server."},
		"none left": {budgetOf(0), metav1.StatusReasonTooManyRequests, "The disruption budget b needs 2 healthy pods and has 3 currently"},
		"none, since the pods cannot be counted": {budgetOf(0, func(b *policyv1.PodDisruptionBudget) {
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Reason: policyv1.SyncFailedReason, Message: "no scale"}}
		}), metav1.StatusReasonTooManyRequests, "The disruption budget b does not allow evicting pods currently because it failed sync: no scale"},
		"negative": {budgetOf(-1), metav1.StatusReasonForbidden, "pdb disruptions allowed is negative"},
		"too many under way": {budgetOf(1, func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptedPods = map[string]metav1.Time{}
			for i := range maxDisrupted + 1 {
				b.Status.DisruptedPods[strings.Repeat("x", i)] = metav1.Time{}
			}
		}), metav1.StatusReasonForbidden, "DisruptedPods map too big"},
	} {
		err := spend(c.budget, "p", time.Now())
		if apierrors.ReasonForError(err) != c.reason {
			t.Errorf("%s: got %v, want %s", name, err, c.reason)
			continue
		}
		text := err.Error()
		for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
			text += cause.Message
		}
		if !strings.Contains(text, c.says) {
			t.Errorf("%s: got %q, want %q", name, text, c.says)
		}
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := budgetOf(1)
	if err := spend(b, "p", now); err != nil {
		t.Fatal(err)
	}
	if at := b.Status.DisruptedPods["p"]; b.Status.DisruptionsAllowed != 0 || !at.Time.Equal(now) {
		t.Errorf("the status is %+v, want none allowed and p under way", b.Status)
	}
	if c := b.Status.Conditions; len(c) != 1 || c[0].Reason != policyv1.InsufficientPodsReason || c[0].Status != metav1.ConditionFalse {
		t.Errorf("the last disruption is spent and the conditions are %+v", c)
	}
}

func TestUnhealthyMayGo(t *testing.T) {
	ready := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	always := func(b *policyv1.PodDisruptionBudget) {
		b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
	}
	short := func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 1 }
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		budget *policyv1.PodDisruptionBudget
		want   bool
	}{
		"ready":                            {ready, budgetOf(1, always), false},
		"not ready, enough are":            {&corev1.Pod{}, budgetOf(0), true},
		"not ready, too few are":           {&corev1.Pod{}, budgetOf(0, short), false},
		"not ready, always allowed":        {&corev1.Pod{}, budgetOf(0, short, always), true},
		"not ready, the budget is unknown": {&corev1.Pod{}, budgetOf(0, func(b *policyv1.PodDisruptionBudget) { b.Status = policyv1.PodDisruptionBudgetStatus{} }), false},
	} {
		if got := unhealthyMayGo(c.pod, c.budget); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestDisrupted(t *testing.T) {
	before, now := metav1.Unix(1, 0), metav1.Unix(2, 0)
	ready := corev1.PodCondition{Type: corev1.PodReady}
	for name, c := range map[string]struct {
		was  []corev1.PodCondition
		at   int
		time metav1.Time
	}{
		"first":        {[]corev1.PodCondition{ready}, 1, now},
		"again":        {[]corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "Other", LastTransitionTime: before}, ready}, 0, before},
		"it was false": {[]corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse, LastTransitionTime: before}, ready}, 0, now},
	} {
		got := disrupted(c.was, 7, now)
		want := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: 7,
			Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: c.time}
		if len(got) != 2 || got[c.at] != want {
			t.Errorf("%s: got %+v, want %+v at %d", name, got, want, c.at)
		}
	}
}

func TestExpected(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", ResourceVersion: "5"}}
	for name, c := range map[string]struct {
		conditions *metav1.Preconditions
		says       string
	}{
		"none":            {nil, ""},
		"met":             {&metav1.Preconditions{UID: ptr.To(types.UID("u")), ResourceVersion: ptr.To("5")}, ""},
		"another pod":     {&metav1.Preconditions{UID: ptr.To(types.UID("x"))}, "the UID in the precondition (x) does not match the UID in record (u)"},
		"another version": {&metav1.Preconditions{ResourceVersion: ptr.To("4")}, "the ResourceVersion in the precondition (4) does not match the ResourceVersion in record (5)"},
	} {
		err := expected(c.conditions, p)
		if (err == nil) != (c.says == "") || err != nil && (!apierrors.IsConflict(err) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}
