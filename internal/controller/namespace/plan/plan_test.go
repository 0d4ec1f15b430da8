package plan

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func find(t *testing.T, list []corev1.NamespaceCondition, kind corev1.NamespaceConditionType) corev1.NamespaceCondition {
	t.Helper()
	i := slices.IndexFunc(list, func(c corev1.NamespaceCondition) bool { return c.Type == kind })
	if i < 0 {
		t.Fatalf("condition %s is missing", kind)
	}
	return list[i]
}

func TestConditionsSayWhatRemains(t *testing.T) {
	r := Remaining{
		Objects:    map[schema.GroupResource]int{{Resource: "pods"}: 2, {Group: "apps", Resource: "daemonsets"}: 1},
		Finalizers: map[string]int{"example.com/b": 1, "example.com/a": 2},
		Failures:   []error{errors.New("list secrets: refused")},
	}
	if r.Empty() {
		t.Error("a namespace with two pods is called empty")
	}
	conditions, changed := Conditions(nil, r, epoch)
	if !changed {
		t.Error("new conditions are called unchanged")
	}
	for kind, want := range map[corev1.NamespaceConditionType]struct{ status, reason, message string }{
		corev1.NamespaceDeletionDiscoveryFailure: {"False", "ResourcesDiscovered", "All resources are known"},
		corev1.NamespaceDeletionGVParsingFailure: {"False", "ParsedGroupVersions", "All resources are known"},
		corev1.NamespaceDeletionContentFailure:   {"True", "ContentDeletionFailed", "Failed to delete some resources: list secrets: refused"},
		corev1.NamespaceContentRemaining: {
			"True", "SomeResourcesRemain",
			"Some resources are remaining: daemonsets.apps has 1 resource instances, pods has 2 resource instances",
		},
		corev1.NamespaceFinalizersRemaining: {
			"True", "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: example.com/a in 2 resource instances, example.com/b in 1 resource instances",
		},
	} {
		got := find(t, conditions, kind)
		if string(got.Status) != want.status || got.Reason != want.reason || got.Message != want.message {
			t.Errorf("%s = %s %s %q, want %v", kind, got.Status, got.Reason, got.Message, want)
		}
	}
}

func TestConditionsChangeOnlyWhenTheyMust(t *testing.T) {
	others := corev1.NamespaceCondition{Type: "example.com/Mine", Status: corev1.ConditionTrue}
	left := Remaining{Objects: map[schema.GroupResource]int{{Resource: "pods"}: 2}}
	first, _ := Conditions([]corev1.NamespaceCondition{others}, left, epoch)
	if got := find(t, first, others.Type); got != others {
		t.Errorf("another's condition became %v", got)
	}
	if _, changed := Conditions(first, left, epoch.Add(time.Minute)); changed {
		t.Error("the same content changes the conditions")
	}
	left.Objects[schema.GroupResource{Resource: "pods"}] = 1
	second, changed := Conditions(first, left, epoch.Add(time.Minute))
	if got := find(t, second, corev1.NamespaceContentRemaining); !changed || got.LastTransitionTime != metav1.NewTime(epoch) {
		t.Errorf("a smaller number of pods: changed %v, transition at %v; want true, the first time", changed, got.LastTransitionTime)
	}
	third, _ := Conditions(second, Remaining{}, epoch.Add(time.Minute))
	if got := find(t, third, corev1.NamespaceContentRemaining); got.Status != corev1.ConditionFalse || got.LastTransitionTime != metav1.NewTime(epoch.Add(time.Minute)) {
		t.Errorf("empty: %v, want False since a minute", got)
	}
	if got := find(t, first, corev1.NamespaceContentRemaining); got.Status != corev1.ConditionTrue {
		t.Error("the caller's conditions were changed")
	}
}

func TestRetryAfter(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		-time.Second:    250 * time.Millisecond,
		0:               250 * time.Millisecond,
		8 * time.Second: time.Second,
		time.Hour:       15 * time.Second,
	} {
		if got := RetryAfter(age); got != want {
			t.Errorf("RetryAfter(%v) = %v, want %v", age, got, want)
		}
	}
}
