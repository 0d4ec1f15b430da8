package bootstrap

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// mergeClusterRole adds the rules and aggregation selectors of want that existing
// lacks, and reports whether it changed anything. An aggregated role's rules are
// the aggregation controller's business.
func mergeClusterRole(existing, want *rbacv1.ClusterRole) bool {
	if isProtected(existing) {
		return false
	}
	changed := mergeMeta(existing, want)
	if want.AggregationRule == nil {
		if existing.AggregationRule != nil {
			existing.AggregationRule, changed = nil, true
		}
		if covered, missing := validation.Covers(existing.Rules, want.Rules); !covered {
			existing.Rules, changed = append(slices.Clone(existing.Rules), missing...), true
		}
		return changed
	}
	if existing.AggregationRule == nil {
		existing.AggregationRule = &rbacv1.AggregationRule{}
	}
	for _, selector := range want.AggregationRule.ClusterRoleSelectors {
		have := existing.AggregationRule.ClusterRoleSelectors
		if !slices.ContainsFunc(have, func(s metav1.LabelSelector) bool { return equality.Semantic.DeepEqual(s, selector) }) {
			existing.AggregationRule.ClusterRoleSelectors, changed = append(slices.Clone(have), selector), true
		}
	}
	return changed
}

// mergeClusterRoleBinding adds the subjects of want that existing lacks, and
// reports whether it changed anything.
func mergeClusterRoleBinding(existing, want *rbacv1.ClusterRoleBinding) bool {
	if isProtected(existing) {
		return false
	}
	changed := mergeMeta(existing, want)
	return mergeSubjects(&existing.Subjects, want.Subjects) || changed
}

// mergeRole and mergeRoleBinding do the same for what is good in one namespace.
func mergeRole(existing, want *rbacv1.Role) bool {
	if isProtected(existing) {
		return false
	}
	changed := mergeMeta(existing, want)
	if covered, missing := validation.Covers(existing.Rules, want.Rules); !covered {
		existing.Rules, changed = append(slices.Clone(existing.Rules), missing...), true
	}
	return changed
}

func mergeRoleBinding(existing, want *rbacv1.RoleBinding) bool {
	if isProtected(existing) {
		return false
	}
	changed := mergeMeta(existing, want)
	return mergeSubjects(&existing.Subjects, want.Subjects) || changed
}

func mergeSubjects(existing *[]rbacv1.Subject, want []rbacv1.Subject) (changed bool) {
	for _, subject := range want {
		if !slices.Contains(*existing, subject) {
			*existing, changed = append(slices.Clone(*existing), subject), true
		}
	}
	return changed
}
