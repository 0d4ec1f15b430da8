// Package resourcequota describes the kind ResourceQuota of core/v1: how much a namespace may have of everything
// together.
package resourcequota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.ResourceQuota, corev1.ResourceQuotaList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "ResourceQuota", Plural: "resourcequotas", Singular: "resourcequota",
		ShortNames: []string{"quota"},
	}, resource.Rules[corev1.ResourceQuota]{
		Default: func(q *corev1.ResourceQuota) {
			for _, list := range []corev1.ResourceList{q.Spec.Hard, q.Status.Hard, q.Status.Used} {
				defaults.RoundResources(list)
			}
		},
		Status:                 func(q *corev1.ResourceQuota) any { return &q.Status },
		PrepareStatusForUpdate: func(_ context.Context, q, old *corev1.ResourceQuota) { q.Spec = old.Spec },
		Validate:               func(_ context.Context, q *corev1.ResourceQuota) field.ErrorList { return Validate(q) },
		ValidateUpdate: func(_ context.Context, q, old *corev1.ResourceQuota) field.ErrorList {
			return ValidateUpdate(q, old)
		},
		ValidateStatusUpdate: func(_ context.Context, q, _ *corev1.ResourceQuota) field.ErrorList {
			return ValidateStatus(q)
		},
		Table: printer,
	})
}

var printer = table.Of(func(q *corev1.ResourceQuota, now time.Time) []any {
	var requests, limits []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(string(name), "limits") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), table.Since(q.CreationTimestamp, now)}
},
	table.Name,
	table.Column{Name: "Request", Description: "What is used of what may be asked for."},
	table.Column{Name: "Limit", Description: "What the limits of pods add up to, of what they may."},
	table.Age,
)
