// Package runtimeclass describes the kind RuntimeClass of node.k8s.io/v1: a way of running pods that nodes have under a
// name.
package runtimeclass

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/placement"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[nodev1.RuntimeClass, nodev1.RuntimeClassList](resource.Kind{
		GroupVersion: nodev1.SchemeGroupVersion, Kind: "RuntimeClass", Plural: "runtimeclasses", Singular: "runtimeclass",
		ClusterScoped: true,
	}, resource.Rules[nodev1.RuntimeClass]{
		Default: func(c *nodev1.RuntimeClass) {
			if c.Overhead != nil {
				defaults.RoundResources(c.Overhead.PodFixed)
			}
		},
		Validate: func(_ context.Context, c *nodev1.RuntimeClass) field.ErrorList { return Validate(c) },
		ValidateUpdate: func(_ context.Context, c, old *nodev1.RuntimeClass) field.ErrorList {
			return append(Validate(c), alike.Unchanged(c.Handler, old.Handler, field.NewPath("handler"))...)
		},

		AllowCreateOnUpdate:    true,
		RequireResourceVersion: true,
		Table: table.Of(func(c *nodev1.RuntimeClass, now time.Time) []any {
			return []any{c.Name, c.Handler, table.Since(c.CreationTimestamp, now)}
		}, table.Name, table.Column{Name: "Handler", Description: "How the runtimes of nodes call it."}, table.Age),
	})
}

// Validate checks a class, metadata aside.
func Validate(c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("handler")
	if c.Handler == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		for _, text := range validation.NameIsDNSLabel(c.Handler, false) {
			errs = append(errs, field.Invalid(at, c.Handler, text))
		}
	}
	if c.Overhead != nil {
		errs = append(errs, podspec.ValidateOverhead(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if c.Scheduling != nil {
		errs = append(errs, validateScheduling(c.Scheduling, field.NewPath("scheduling"))...)
	}
	return errs
}

func validateScheduling(s *nodev1.Scheduling, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))
	at := path.Child("tolerations")
	errs = append(errs, placement.Tolerations(s.Tolerations, at)...)
	type whole struct {
		corev1.Toleration
		seconds int64
		limited bool
	}
	seen := sets.New[whole]()
	for i, t := range enough.Each(s.Tolerations, &errs) {
		key := whole{Toleration: t, seconds: ptr.Deref(t.TolerationSeconds, 0), limited: t.TolerationSeconds != nil}
		key.TolerationSeconds = nil
		if seen.Has(key) {
			errs = append(errs, field.Duplicate(at.Index(i), t))
		}
		seen.Insert(key)
	}
	return errs
}
