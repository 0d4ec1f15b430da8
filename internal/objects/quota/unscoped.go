package quota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// unscoped is what evaluators have in common whose objects are in no scope, and may use more or less with each change.
type unscoped struct{ list generic.ListFuncByNamespace }

// Handles implements quota.Evaluator.
func (unscoped) Handles(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// MatchingScopes implements quota.Evaluator.
func (unscoped) MatchingScopes(runtime.Object,
	[]corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return []corev1.ScopedResourceSelectorRequirement{}, nil
}

// UncoveredQuotaScopes implements quota.Evaluator.
func (unscoped) UncoveredQuotaScopes(_,
	_ []corev1.ScopedResourceSelectorRequirement) ([]corev1.ScopedResourceSelectorRequirement, error) {
	return []corev1.ScopedResourceSelectorRequirement{}, nil
}
