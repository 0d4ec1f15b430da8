// Package poddisruptionbudget describes the kind PodDisruptionBudget of policy/v1.
package poddisruptionbudget

import (
	"context"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](resource.Kind{
		GroupVersion: policyv1.SchemeGroupVersion, Kind: "PodDisruptionBudget",
		Plural: "poddisruptionbudgets", Singular: "poddisruptionbudget", ShortNames: []string{"pdb"},
	}, resource.Rules[policyv1.PodDisruptionBudget]{
		// Nothing is named after a budget, so its name may be as long as a path allows.
		ValidateName: resource.PathSegmentName,

		Spec:   func(b *policyv1.PodDisruptionBudget) any { return &b.Spec },
		Status: func(b *policyv1.PodDisruptionBudget) any { return &b.Status },
		Validate: func(_ context.Context, b *policyv1.PodDisruptionBudget) field.ErrorList {
			return Validate(&b.Spec, field.NewPath("spec"))
		},
		ValidateStatusUpdate: func(_ context.Context, b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
			return ValidateStatus(&b.Status, field.NewPath("status"))
		},
		RequireResourceVersion: true,
		Table:                  printer,
	})
}

// Validate checks a budget's specification.
func Validate(spec *policyv1.PodDisruptionBudgetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, shown(spec), "minAvailable and maxUnavailable cannot be both set"))
	}
	if v := spec.MinAvailable; v != nil {
		errs = append(errs, amount.NumberOrPercent(path.Child("minAvailable"), *v)...)
		errs = append(errs, amount.AtMostAll(path.Child("minAvailable"), *v)...)
	}
	if v := spec.MaxUnavailable; v != nil {
		errs = append(errs, amount.NumberOrPercent(path.Child("maxUnavailable"), *v)...)
		errs = append(errs, amount.AtMostAll(path.Child("maxUnavailable"), *v)...)
	}
	errs = append(errs, enough.LabelSelector(
		spec.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"),
	)...)
	if p := spec.UnhealthyPodEvictionPolicy; p != nil && *p != policyv1.AlwaysAllow && *p != policyv1.IfHealthyBudget {
		errs = append(errs, field.NotSupported(path.Child("unhealthyPodEvictionPolicy"), *p,
			[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}))
	}
	return errs
}

// shown is how error texts spell a budget: all fields, under their Go names.
func shown(s *policyv1.PodDisruptionBudgetSpec) any {
	return struct {
		MinAvailable               *intstr.IntOrString
		Selector                   *metav1.LabelSelector
		MaxUnavailable             *intstr.IntOrString
		UnhealthyPodEvictionPolicy *policyv1.UnhealthyPodEvictionPolicyType
	}{s.MinAvailable, s.Selector, s.MaxUnavailable, s.UnhealthyPodEvictionPolicy}
}

// ValidateStatus checks a status that a controller reports.
func ValidateStatus(s *policyv1.PodDisruptionBudgetStatus, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(s.Conditions, path.Child("conditions"))
	errs = append(errs, amount.NonNegative(path.Child("disruptionsAllowed"), int64(s.DisruptionsAllowed))...)
	errs = append(errs, amount.NonNegative(path.Child("currentHealthy"), int64(s.CurrentHealthy))...)
	errs = append(errs, amount.NonNegative(path.Child("desiredHealthy"), int64(s.DesiredHealthy))...)
	return append(errs, amount.NonNegative(path.Child("expectedPods"), int64(s.ExpectedPods))...)
}

var printer = table.Of(func(b *policyv1.PodDisruptionBudget, now time.Time) []any {
	return []any{
		b.Name,
		orNA(b.Spec.MinAvailable),
		orNA(b.Spec.MaxUnavailable),
		int64(b.Status.DisruptionsAllowed),
		table.Since(b.CreationTimestamp, now),
	}
},
	table.Name,
	table.Column{Name: "Min Available", Description: "Pods that must stay available."},
	table.Column{Name: "Max Unavailable", Description: "Pods that may be unavailable."},
	table.Column{Name: "Allowed Disruptions", Type: "integer", Description: "Pods that may be evicted now."},
	table.Age,
)

func orNA(v *intstr.IntOrString) string {
	if v == nil {
		return "N/A"
	}
	return v.String()
}
