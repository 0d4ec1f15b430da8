// Package daemonset describes the kind DaemonSet of apps/v1: what is filled in,
// refused, kept up to date and shown.
package daemonset

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[appsv1.DaemonSet, appsv1.DaemonSetList](resource.Kind{
		GroupVersion: appsv1.SchemeGroupVersion, Kind: "DaemonSet",
		Plural: "daemonsets", Singular: "daemonset", ShortNames: []string{"ds"}, Categories: []string{"all"},
	}, resource.Rules[appsv1.DaemonSet]{
		Default: SetDefaults,
		Unreadable: func(d *appsv1.DaemonSet) error {
			_, err := parseTemplateGeneration(d)
			return err
		},
		Spec:             func(d *appsv1.DaemonSet) any { return &d.Spec },
		Status:           func(d *appsv1.DaemonSet) any { return &d.Status },
		PrepareForCreate: prepareForCreate,
		PrepareForUpdate: prepareForUpdate,
		Validate:         func(_ context.Context, d *appsv1.DaemonSet) field.ErrorList { return Validate(d) },
		ValidateUpdate: func(_ context.Context, d, old *appsv1.DaemonSet) field.ErrorList {
			return ValidateUpdate(d, old)
		},
		PrepareStatusForUpdate: prepareStatusForUpdate,
		ValidateStatusUpdate: func(_ context.Context, d, old *appsv1.DaemonSet) field.ErrorList {
			return ValidateStatusUpdate(&d.Status, &old.Status)
		},
		WarningsOnCreate: func(_ context.Context, d *appsv1.DaemonSet) []string {
			return warnings.OfTemplate(&d.Spec.Template, templatePath)
		},
		WarningsOnUpdate: func(_ context.Context, d, old *appsv1.DaemonSet) []string {
			if templateGeneration(d) == templateGeneration(old) {
				return nil
			}
			return warnings.OfTemplate(&d.Spec.Template, templatePath)
		},
		Table: printer,
	})
}

var templatePath = field.NewPath("spec", "template")

// The template's generation counts the changes of the template. It has no field
// in apps/v1; an annotation, always present, carries it, and users cannot
// change it once the DaemonSet exists.

func prepareForCreate(_ context.Context, d *appsv1.DaemonSet) {
	setTemplateGeneration(d, templateGeneration(d))
}

func prepareForUpdate(_ context.Context, d, old *appsv1.DaemonSet) {
	generation := templateGeneration(old)
	if !alike.Values(d.Spec.Template, old.Spec.Template) {
		generation++
	}
	setTemplateGeneration(d, generation)
}

func prepareStatusForUpdate(_ context.Context, d, old *appsv1.DaemonSet) {
	setTemplateGeneration(d, templateGeneration(old))
}

// parseTemplateGeneration returns 0 when the annotation is missing.
func parseTemplateGeneration(d *appsv1.DaemonSet) (int64, error) {
	text, ok := d.Annotations[appsv1.DeprecatedTemplateGeneration]
	if !ok {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// templateGeneration is for objects whose annotation has been checked.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	generation, err := parseTemplateGeneration(d)
	if err != nil {
		return 1
	}
	return max(generation, 1)
}

func setTemplateGeneration(d *appsv1.DaemonSet, generation int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(generation, 10)
}
