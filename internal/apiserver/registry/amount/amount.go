// Package amount checks API fields that hold a number, or a number or a
// percentage, such as a rollout's maxUnavailable.
package amount

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NonNegative refuses a number below zero.
func NonNegative(path *field.Path, n int64) field.ErrorList {
	return validation.ValidateNonnegativeField(n, path)
}

// NumberOrPercent refuses negative numbers and texts that are not a percentage.
func NumberOrPercent(path *field.Path, v intstr.IntOrString) field.ErrorList {
	if v.Type == intstr.Int {
		return NonNegative(path, int64(v.IntVal))
	}
	var errs field.ErrorList
	for _, message := range utilvalidation.IsValidPercent(v.StrVal) {
		errs = append(errs, field.Invalid(path, v, message))
	}
	return errs
}

// AtMostAll refuses more than 100 percent. Numbers have no upper limit.
func AtMostAll(path *field.Path, v intstr.IntOrString) field.ErrorList {
	if percent, ok := Percent(v); ok && percent > 100 {
		return field.ErrorList{field.Invalid(path, v, "must not be greater than 100%")}
	}
	return nil
}

// Percent returns the percentage that v holds, if it holds one.
func Percent(v intstr.IntOrString) (int, bool) {
	if v.Type != intstr.String || len(utilvalidation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return n, err == nil
}

// Value returns the number in v, be it a percentage or not; 0 if there is none.
func Value(v intstr.IntOrString) int {
	if n, ok := Percent(v); ok {
		return n
	}
	return int(v.IntVal)
}
