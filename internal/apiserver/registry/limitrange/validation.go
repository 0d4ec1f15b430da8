package limitrange

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

var types = []corev1.LimitType{corev1.LimitTypePod, corev1.LimitTypeContainer, corev1.LimitTypePersistentVolumeClaim}

// Validate checks a limit range, metadata aside.
func Validate(l *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	path := field.NewPath("spec", "limits")
	for i := range enough.Each(l.Spec.Limits, &errs) {
		item, at := &l.Spec.Limits[i], path.Index(i)
		errs = append(errs, validateType(item.Type, at.Child("type"))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen[item.Type] = true
		errs = append(errs, validateNames(item, at)...)
		for _, name := range enough.Each(namesOf(item), &errs) {
			errs = append(errs, validateAmounts(item, name, at)...)
		}
	}
	return errs
}

func validateType(t corev1.LimitType, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, text := range utilvalidation.IsQualifiedName(string(t)) {
		errs = append(errs, field.Invalid(at, t, text))
	}
	if len(errs) == 0 && !strings.Contains(string(t), "/") && !slices.Contains(types, t) {
		errs = append(errs, field.Invalid(at, t, "must be a standard limit type or fully qualified"))
	}
	return errs
}

// validateNames checks which resources an item is about, and which lists it may have.
func validateNames(l *corev1.LimitRangeItem, at *field.Path) field.ErrorList {
	check := func(list corev1.ResourceList, child string) (errs field.ErrorList) {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if l.Type == corev1.LimitTypePod || l.Type == corev1.LimitTypeContainer {
				errs = append(errs, podspec.ContainerResourceName(at.Child(child).Key(string(name)), name)...)
			} else {
				errs = append(errs, podspec.ResourceName(at.Child(child).Key(string(name)), name)...)
			}
		}
		return errs
	}
	errs := append(check(l.Max, "max"), check(l.Min, "min")...)
	if l.Type == corev1.LimitTypePod {
		const text = "may not be specified when `type` is 'Pod'"
		if len(l.Default) > 0 {
			errs = append(errs, field.Forbidden(at.Child("default"), text))
		}
		if len(l.DefaultRequest) > 0 {
			errs = append(errs, field.Forbidden(at.Child("defaultRequest"), text))
		}
	} else {
		errs = append(errs, check(l.Default, "default")...)
		errs = append(errs, check(l.DefaultRequest, "defaultRequest")...)
	}
	if l.Type == corev1.LimitTypePersistentVolumeClaim {
		_, least := l.Min[corev1.ResourceStorage]
		_, most := l.Max[corev1.ResourceStorage]
		if !least && !most {
			errs = append(errs, field.Required(
				at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided",
			))
		}
	}
	return append(errs, check(l.MaxLimitRequestRatio, "maxLimitRequestRatio")...)
}

// namesOf are the resources that an item is about, in order.
func namesOf(l *corev1.LimitRangeItem) []corev1.ResourceName {
	all := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{l.Max, l.Min, l.MaxLimitRequestRatio} {
		maps.Copy(all, list)
	}
	if l.Type != corev1.LimitTypePod {
		maps.Copy(all, l.Default)
		maps.Copy(all, l.DefaultRequest)
	}
	return slices.Sorted(maps.Keys(all))
}

// validateAmounts checks that the amounts of one resource are in order: least, default request, default, most.
func validateAmounts(l *corev1.LimitRangeItem, name corev1.ResourceName, at *field.Path) field.ErrorList {
	in := func(list corev1.ResourceList) *resource.Quantity {
		if amount, ok := list[name]; ok {
			return &amount
		}
		return nil
	}
	least, most, ratio := in(l.Min), in(l.Max), in(l.MaxLimitRequestRatio)
	var standard, request *resource.Quantity
	if l.Type != corev1.LimitTypePod {
		standard, request = in(l.Default), in(l.DefaultRequest)
	}
	var errs field.ErrorList
	// order refuses a pair in the wrong order; the blamed value is the one of the two that is shown.
	order := func(low, high, shown *resource.Quantity, child, text string) {
		if low != nil && high != nil && low.Cmp(*high) > 0 {
			errs = append(errs, field.Invalid(
				at.Child(child).Key(string(name)), shown.String(), fmt.Sprintf(text, low.String(), high.String()),
			))
		}
	}
	order(least, most, least, "min", "min value %s is greater than max value %s")
	order(least, request, request, "defaultRequest", "min value %s is greater than default request value %s")
	order(request, most, request, "defaultRequest", "default request value %s is greater than max value %s")
	order(request, standard, request, "defaultRequest", "default request value %s is greater than default limit value %s")
	order(least, standard, least, "default", "min value %s is greater than default value %s")
	order(standard, most, most, "default", "default value %s is greater than max value %s")
	if ratio != nil {
		errs = append(errs, validateRatio(ratio, least, most, at.Child("maxLimitRequestRatio").Key(string(name)))...)
	}
	if !defaults.MayOvercommit(name) && standard != nil && request != nil && standard.Cmp(*request) != 0 {
		errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(string(name)), request.String(),
			fmt.Sprintf(
				"default value %s must equal to defaultRequest value %s in %s", standard.String(), request.String(), name,
			)))
	}
	return errs
}

func validateRatio(ratio, least, most *resource.Quantity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(at, ratio.String(), fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	if least == nil || most == nil {
		return errs
	}
	if limit := most.AsApproximateFloat64() / least.AsApproximateFloat64(); ratio.AsApproximateFloat64() > limit {
		errs = append(errs, field.Invalid(
			at, ratio.String(), fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), limit),
		))
	}
	return errs
}
