package enough

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// LabelSelector checks a selector as metav1validation.ValidateLabelSelector does, and ends early where it has found
// more than Errors.
func LabelSelector(
	s *metav1.LabelSelector, options metav1validation.LabelSelectorValidationOptions, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return errs
	}
	at := path.Child("matchLabels")
	for name, value := range Entries(s.MatchLabels, &errs) {
		errs = append(errs, metav1validation.ValidateLabelName(name, at)...)
		for _, message := range validation.IsValidLabelValue(value) {
			errs = append(errs, field.Invalid(at, value, message))
		}
	}
	at = path.Child("matchExpressions")
	for i := range Each(s.MatchExpressions, &errs) {
		errs = append(errs, requirement(&s.MatchExpressions[i], options, at.Index(i))...)
	}
	return errs
}

// Selects reports whether a selector that LabelSelector finds nothing wrong with selects the labels; nil selects none.
// The library takes long for one that asks for more labels than there are.
func Selects(s *metav1.LabelSelector, has labels.Set) bool {
	if s != nil && len(s.MatchLabels) > len(has) {
		return false
	}
	is, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && is.Matches(has)
}

func requirement(
	r *metav1.LabelSelectorRequirement, options metav1validation.LabelSelectorValidationOptions, path *field.Path,
) field.ErrorList {
	others := options
	others.AllowInvalidLabelValueInSelector = true
	errs := metav1validation.ValidateLabelSelectorRequirement(*r, others, path)
	if options.AllowInvalidLabelValueInSelector {
		return errs
	}
	for i, value := range Each(r.Values, &errs) {
		for _, message := range validation.IsValidLabelValue(value) {
			errs = append(errs, field.Invalid(path.Child("values").Index(i), value, message))
		}
	}
	return errs
}
