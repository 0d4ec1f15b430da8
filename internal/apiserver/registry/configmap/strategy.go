// Package configmap describes the kind ConfigMap of core/v1.
package configmap

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.ConfigMap, corev1.ConfigMapList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "ConfigMap",
		Plural: "configmaps", Singular: "configmap", ShortNames: []string{"cm"},
	}, resource.Rules[corev1.ConfigMap]{
		Default: func(c *corev1.ConfigMap) {
			if c.Data == nil {
				c.Data = map[string]string{}
			}
		},
		Validate:       func(_ context.Context, c *corev1.ConfigMap) field.ErrorList { return Validate(c) },
		ValidateUpdate: func(_ context.Context, c, old *corev1.ConfigMap) field.ErrorList { return ValidateUpdate(c, old) },
		Table:          printer,
	})
}

// Validate checks a config map, metadata aside: its keys must do as file names,
// and it must not be too big.
func Validate(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for _, key := range enough.Each(slices.Sorted(maps.Keys(c.Data)), &errs) {
		at := field.NewPath("data").Key(key)
		for _, m := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(at, key, m))
		}
		if _, both := c.BinaryData[key]; both {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range enough.Each(slices.Sorted(maps.Keys(c.BinaryData)), &errs) {
		for _, m := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("binaryData").Key(key), key, m))
		}
		size += len(c.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

// ValidateUpdate checks a changed config map, metadata aside.
func ValidateUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	const frozen = "field is immutable when `immutable` is set"
	var errs field.ErrorList
	if old.Immutable != nil && *old.Immutable {
		if c.Immutable == nil || !*c.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), frozen))
		}
		if !maps.Equal(c.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), frozen))
		}
		if !maps.EqualFunc(c.BinaryData, old.BinaryData, bytes.Equal) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), frozen))
		}
	}
	return append(errs, Validate(c)...)
}

var printer = table.Of(func(c *corev1.ConfigMap, now time.Time) []any {
	return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), table.Since(c.CreationTimestamp, now)}
}, table.Name, table.Column{Name: "Data", Description: "Number of keys."}, table.Age)
