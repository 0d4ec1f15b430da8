// Package podtemplate describes the kind PodTemplate of core/v1: a template by itself, for whoever makes pods from it.
package podtemplate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.PodTemplate, corev1.PodTemplateList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "PodTemplate", Plural: "podtemplates", Singular: "podtemplate",
	}, resource.Rules[corev1.PodTemplate]{
		Default:  func(t *corev1.PodTemplate) { defaults.SetTemplate(&t.Template) },
		Spec:     func(t *corev1.PodTemplate) any { return &t.Template },
		Validate: func(_ context.Context, t *corev1.PodTemplate) field.ErrorList { return Validate(t) },
		ValidateUpdate: func(_ context.Context, t, old *corev1.PodTemplate) field.ErrorList {
			return podspec.ValidateTemplateUpdate(&t.Template, &old.Template, field.NewPath("template"))
		},
		WarningsOnCreate: func(_ context.Context, t *corev1.PodTemplate) []string {
			return warnings.OfTemplate(&t.Template, field.NewPath("template"))
		},
		WarningsOnUpdate: func(_ context.Context, t, old *corev1.PodTemplate) []string {
			if t.Generation == old.Generation {
				return nil
			}
			return warnings.OfTemplate(&t.Template, field.NewPath("template"))
		},
		Table: printer,
	})
}

// Validate checks a new template, metadata aside.
func Validate(t *corev1.PodTemplate) field.ErrorList {
	return podspec.ValidateTemplate(&t.Template, field.NewPath("template"))
}

var printer = table.Of(func(t *corev1.PodTemplate, _ time.Time) []any {
	names, images := podspec.Summary(t.Template.Spec.Containers)
	return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
},
	table.Name,
	table.Column{Name: "Containers", Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Description: "Images of the containers in the template."},
	table.Column{Name: "Pod Labels", Description: "Labels of pods that are made from the template."},
)
