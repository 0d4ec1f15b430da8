// Package deployment describes the kind Deployment of apps/v1.
package deployment

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	template := field.NewPath("spec", "template")
	return resource.Of[appsv1.Deployment, appsv1.DeploymentList](resource.Kind{
		GroupVersion: appsv1.SchemeGroupVersion, Kind: "Deployment",
		Plural: "deployments", Singular: "deployment", ShortNames: []string{"deploy"}, Categories: []string{"all"},
	}, resource.Rules[appsv1.Deployment]{
		Default: SetDefaults,
		Spec:    func(d *appsv1.Deployment) any { return &d.Spec },
		Status:  func(d *appsv1.Deployment) any { return &d.Status },
		// Annotations are copied to replica sets, so their change counts too.
		PrepareForUpdate: func(_ context.Context, d, old *appsv1.Deployment) {
			if d.Generation == old.Generation && !alike.Values(d.Annotations, old.Annotations) {
				d.Generation++
			}
		},
		Validate:       func(_ context.Context, d *appsv1.Deployment) field.ErrorList { return Validate(d) },
		ValidateUpdate: func(_ context.Context, d, old *appsv1.Deployment) field.ErrorList { return ValidateUpdate(d, old) },
		ValidateStatusUpdate: func(_ context.Context, d, old *appsv1.Deployment) field.ErrorList {
			return ValidateStatusUpdate(&d.Status, &old.Status)
		},
		WarningsOnCreate: func(_ context.Context, d *appsv1.Deployment) []string {
			return append(warnings.OfName(d.Name, "Pod names and hostnames"), warnings.OfTemplate(&d.Spec.Template, template)...)
		},
		WarningsOnUpdate: func(_ context.Context, d, old *appsv1.Deployment) []string {
			if d.Generation == old.Generation {
				return nil
			}
			return warnings.OfTemplate(&d.Spec.Template, template)
		},
		Table: printer,
	})
}

const (
	revisionsKept   = 10
	progressSeconds = 600
)

// SetDefaults fills in what a deployment leaves out. By default a quarter of
// the pods is replaced at a time.
func SetDefaults(d *appsv1.Deployment) {
	spec := &d.Spec
	if spec.Replicas == nil {
		spec.Replicas = ptr.To[int32](1)
	}
	if spec.Strategy.Type == "" {
		spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if spec.Strategy.RollingUpdate == nil {
			spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		quarter := intstr.FromString("25%")
		if spec.Strategy.RollingUpdate.MaxUnavailable == nil {
			spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(quarter)
		}
		if spec.Strategy.RollingUpdate.MaxSurge == nil {
			spec.Strategy.RollingUpdate.MaxSurge = ptr.To(quarter)
		}
	}
	if spec.RevisionHistoryLimit == nil {
		spec.RevisionHistoryLimit = ptr.To[int32](revisionsKept)
	}
	if spec.ProgressDeadlineSeconds == nil {
		spec.ProgressDeadlineSeconds = ptr.To[int32](progressSeconds)
	}
	defaults.SetTemplate(&spec.Template)
}

var printer = table.Of(row,
	table.Name,
	table.Column{Name: "Ready", Description: "Pods that are ready, of those wanted."},
	table.Column{Name: "Up-to-date", Description: "Pods of the current template."},
	table.Column{Name: "Available", Description: "Pods that have been ready for minReadySeconds."},
	table.Age,
	table.Column{Name: "Containers", Wide: true, Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Wide: true, Description: "Images of the containers in the template."},
	table.Column{Name: "Selector", Wide: true, Description: "Selector of the pods that belong to the deployment."},
)

func row(d *appsv1.Deployment, now time.Time) []any {
	names, images := podspec.Summary(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0)),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas),
		table.Since(d.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(d.Spec.Selector),
	}
}
