// Package limitrange describes the kind LimitRange of core/v1: what containers, pods and claims of a namespace may ask
// for, and what they get that ask for nothing.
package limitrange

import (
	"context"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.LimitRange, corev1.LimitRangeList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "LimitRange", Plural: "limitranges", Singular: "limitrange",
		ShortNames: []string{"limits"},
	}, resource.Rules[corev1.LimitRange]{
		Default: func(l *corev1.LimitRange) {
			for i := range l.Spec.Limits {
				SetDefaults(&l.Spec.Limits[i])
			}
		},
		PrepareForCreate: func(_ context.Context, l *corev1.LimitRange) {
			if l.Name == "" {
				l.Name = uuid.NewString()
			}
		},
		Validate: func(_ context.Context, l *corev1.LimitRange) field.ErrorList { return Validate(l) },

		AllowCreateOnUpdate: true,
		Table: table.Of(func(l *corev1.LimitRange, _ time.Time) []any {
			return []any{l.Name, l.CreationTimestamp.UTC().Format(time.RFC3339)}
		}, table.Name, table.Column{Name: "Created At", Type: "date", Description: "When the object was created."}),
	})
}

// SetDefaults fills in what follows from the rest of an item: a container may use as much as the most there may be, and
// asks for as much as it may use, or else for the least there may be.
func SetDefaults(l *corev1.LimitRangeItem) {
	for _, list := range []corev1.ResourceList{l.Max, l.Min, l.Default, l.DefaultRequest, l.MaxLimitRequestRatio} {
		defaults.RoundResources(list)
	}
	if l.Type != corev1.LimitTypeContainer {
		return
	}
	if l.Default == nil {
		l.Default = corev1.ResourceList{}
	}
	if l.DefaultRequest == nil {
		l.DefaultRequest = corev1.ResourceList{}
	}
	fill(l.Default, l.Max)
	fill(l.DefaultRequest, l.Default)
	fill(l.DefaultRequest, l.Min)
}

// fill adds what a list has not.
func fill(to, from corev1.ResourceList) {
	for name, amount := range from {
		if _, ok := to[name]; !ok {
			to[name] = amount.DeepCopy()
		}
	}
}
