package enough_test

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

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

// Of selectors that are in order the same is selected as by the library, which takes all others for wrong, too.
func TestSelectorsSelectAsTheLibrary(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c", "-", ""})
	has := rapid.MapOf(names, names)
	requirements := rapid.Custom(func(t *rapid.T) metav1.LabelSelectorRequirement {
		operators := []metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Near"}
		return metav1.LabelSelectorRequirement{
			Key: names.Draw(t, "key"), Operator: rapid.SampledFrom(operators).Draw(t, "operator"),
			Values: rapid.SliceOfN(names, 0, 2).Draw(t, "values"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		s := &metav1.LabelSelector{
			MatchLabels: has.Draw(t, "labels"), MatchExpressions: rapid.SliceOfN(requirements, 0, 2).Draw(t, "requirements"),
		}
		if rapid.IntRange(0, 9).Draw(t, "none") == 0 {
			s = nil
		}
		wrong := enough.LabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("s"))
		is, err := metav1.LabelSelectorAsSelector(s)
		if (len(wrong) == 0) != (err == nil) {
			t.Fatalf("%v has errors %v, and by the library %v", s, wrong, err)
		}
		on := labels.Set(has.Draw(t, "has"))
		if got := enough.Selects(s, on); err == nil && got != is.Matches(on) {
			t.Fatalf("%v selects %v: %t, by the library %t", s, on, got, !got)
		}
	})
}
