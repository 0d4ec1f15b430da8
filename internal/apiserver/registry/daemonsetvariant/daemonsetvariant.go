// Package daemonsetvariant describes DaemonSetVariant, which says how pods of DaemonSets differ on some nodes.
package daemonsetvariant

import (
	"context"
	"time"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/change/variant"
)

// Kind names DaemonSetVariant.
func Kind() resource.Kind {
	return resource.Kind{
		GroupVersion: v1alpha1.GroupVersion, Kind: "DaemonSetVariant", Plural: "daemonsetvariants",
		Singular: "daemonsetvariant", ShortNames: []string{"dsv"},
	}
}

// Definition returns the kind.
func Definition() resource.Definition {
	type kindOf = v1alpha1.DaemonSetVariant
	return resource.Of[kindOf, v1alpha1.DaemonSetVariantList](Kind(), resource.Rules[kindOf]{
		Spec:     func(v *kindOf) any { return &v.Spec },
		Status:   func(v *kindOf) any { return &v.Status },
		Validate: func(_ context.Context, v *kindOf) field.ErrorList { return variant.Validate(v) },
		ValidateStatusUpdate: func(_ context.Context, v, _ *kindOf) field.ErrorList {
			return metav1validation.ValidateConditions(v.Status.Conditions, field.NewPath("status", "conditions"))
		},
		Table: table.Of(row,
			table.Name,
			table.Column{Name: "Priority", Type: "integer", Description: "Which of several variants of a node applies."},
			table.Column{Name: "DaemonSets", Type: "integer", Description: "How many DaemonSets it chooses."},
			table.Column{Name: "Nodes", Type: "integer", Description: "How many pods' nodes it applies to."},
			table.Age,
			table.Column{Name: "Selector", Wide: true, Description: "Labels of the nodes that it chooses."},
		),
	})
}

func row(v *v1alpha1.DaemonSetVariant, now time.Time) []any {
	st := &v.Status
	return []any{
		v.Name, int64(v.Spec.Priority), int64(st.DaemonSets), int64(st.Nodes),
		table.Since(v.CreationTimestamp, now), table.OrAll(v.Spec.Nodes),
	}
}
