// Package plan decides how far a terminating namespace is and what its status says.
package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Remaining is what one pass over a namespace's content has left.
type Remaining struct {
	// Objects counts by resource what is still there.
	Objects map[schema.GroupResource]int
	// Finalizers counts the objects by the finalizers that hold them.
	Finalizers map[string]int
	// Failures are the errors of the pass.
	Failures []error
	// Unknown says why not all kinds are known that there could be objects of.
	Unknown error
}

// Empty tells that nothing is left, nothing failed and nothing is unknown.
func (r Remaining) Empty() bool { return !r.Content() && r.Unknown == nil }

// Content tells that there is content of a kind that is known, or may be.
func (r Remaining) Content() bool { return len(r.Objects) > 0 || len(r.Failures) > 0 }

// RetryAfter is how long to wait before the next pass over a namespace that has been
// terminating for age: soon at first, seldom when somebody lets it wait.
func RetryAfter(age time.Duration) time.Duration {
	return min(max(age/8, 250*time.Millisecond), 15*time.Second)
}

// Conditions merges what is left into the namespace's conditions; false if that changes
// nothing. Conditions of other types are kept.
func Conditions(current []corev1.NamespaceCondition, r Remaining, now time.Time) ([]corev1.NamespaceCondition, bool) {
	merged := slices.Clone(current)
	changed := false
	for _, want := range wanted(r) {
		i := slices.IndexFunc(merged, func(c corev1.NamespaceCondition) bool { return c.Type == want.Type })
		if i < 0 {
			want.LastTransitionTime = metav1.NewTime(now)
			merged, changed = append(merged, want), true
			continue
		}
		have := &merged[i]
		if have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
			continue
		}
		if have.Status != want.Status {
			have.LastTransitionTime = metav1.NewTime(now)
		}
		have.Status, have.Reason, have.Message = want.Status, want.Reason, want.Message
		changed = true
	}
	return merged, changed
}

func wanted(r Remaining) []corev1.NamespaceCondition {
	no := func(kind corev1.NamespaceConditionType, reason, message string) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	yes := func(kind corev1.NamespaceConditionType, reason, message string) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	conditions := []corev1.NamespaceCondition{
		no(corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "All resources are known"),
		no(corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "All resources are known"),
		no(corev1.NamespaceDeletionContentFailure, "ContentDeleted", "All content was asked to go"),
		no(corev1.NamespaceContentRemaining, "ContentRemoved", "All content is gone"),
		no(corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "No finalizer holds any content"),
	}
	if r.Unknown != nil {
		conditions[0] = yes(
			corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed", "Discovery failed for some groups: "+r.Unknown.Error(),
		)
	}
	if len(r.Failures) > 0 {
		messages := make([]string, 0, len(r.Failures))
		for _, err := range r.Failures {
			messages = append(messages, err.Error())
		}
		slices.Sort(messages)
		conditions[2] = yes(corev1.NamespaceDeletionContentFailure, "ContentDeletionFailed",
			"Failed to delete some resources: "+strings.Join(messages, "; "))
	}
	if len(r.Objects) > 0 {
		var parts []string
		for resource, n := range r.Objects {
			parts = append(parts, fmt.Sprintf("%s has %d resource instances", resource, n))
		}
		slices.Sort(parts)
		conditions[3] = yes(
			corev1.NamespaceContentRemaining, "SomeResourcesRemain", "Some resources are remaining: "+strings.Join(parts, ", "),
		)
	}
	if len(r.Finalizers) > 0 {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(r.Finalizers)) {
			parts = append(parts, fmt.Sprintf("%s in %d resource instances", name, r.Finalizers[name]))
		}
		conditions[4] = yes(corev1.NamespaceFinalizersRemaining, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+strings.Join(parts, ", "))
	}
	return conditions
}
