package enough_test

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// A selector is refused in the library's words.
func TestSelectorsAsTheLibrary(t *testing.T) {
	path := field.NewPath("spec", "selector")
	expressions := func(all ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: all}
	}
	for i, s := range []*metav1.LabelSelector{
		nil, {}, {MatchLabels: map[string]string{"a": "b"}}, {MatchLabels: map[string]string{"-a": "b b", "c/d/e": "x"}},
		expressions(metav1.LabelSelectorRequirement{}),
		expressions(metav1.LabelSelectorRequirement{Key: "a", Operator: "In"}, metav1.LabelSelectorRequirement{Key: "a", Operator: "In", Values: []string{"b", "-", "c c"}}),
		expressions(metav1.LabelSelectorRequirement{Key: "a b", Operator: "Exists", Values: []string{"b", "-"}}),
		expressions(metav1.LabelSelectorRequirement{Key: "a", Operator: "Near", Values: []string{"-"}}),
		{MatchLabels: map[string]string{"a": "?"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "?", Operator: "NotIn"}}},
	} {
		for _, options := range []metav1validation.LabelSelectorValidationOptions{
			{}, {AllowInvalidLabelValueInSelector: true}, {AllowUnknownOperatorInRequirement: true},
		} {
			want := texts(metav1validation.ValidateLabelSelector(s, options, path))
			if got := texts(enough.LabelSelector(s, options, path)); !slices.Equal(got, want) {
				t.Errorf("selector %d, %+v: %q, want %q", i, options, got, want)
			}
		}
	}
}

// texts are sorted, as the library takes labels in no order.
func texts(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Error())
	}
	slices.Sort(out)
	return out
}

// Of a long selector no more is looked at than a client is told of.
func TestLongSelectors(t *testing.T) {
	const n = 20 * enough.Errors
	labels, values := map[string]string{}, make([]string, n)
	for i := range n {
		labels[fmt.Sprint("-", i)] = "-"
		values[i] = "-"
	}
	for name, s := range map[string]*metav1.LabelSelector{
		"labels":      {MatchLabels: labels},
		"expressions": {MatchExpressions: make([]metav1.LabelSelectorRequirement, n)},
		"values":      {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: values}}},
		"all": {MatchLabels: labels, MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "a", Operator: "In", Values: values}, {Key: "a", Operator: "In", Values: values},
		}},
	} {
		got := len(enough.LabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("s")))
		if got <= enough.Errors || got > enough.Errors+5 {
			t.Errorf("%s: %d errors", name, got)
		}
	}
}
