// Package replicaset describes the kind ReplicaSet of apps/v1.
package replicaset

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/podspec/warnings"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[appsv1.ReplicaSet, appsv1.ReplicaSetList](resource.Kind{
		GroupVersion: appsv1.SchemeGroupVersion, Kind: "ReplicaSet",
		Plural: "replicasets", Singular: "replicaset", ShortNames: []string{"rs"}, Categories: []string{"all"},
	}, resource.Rules[appsv1.ReplicaSet]{
		Default:        SetDefaults,
		Spec:           func(r *appsv1.ReplicaSet) any { return &r.Spec },
		Status:         func(r *appsv1.ReplicaSet) any { return &r.Status },
		Validate:       func(_ context.Context, r *appsv1.ReplicaSet) field.ErrorList { return Validate(r) },
		ValidateUpdate: func(_ context.Context, r, old *appsv1.ReplicaSet) field.ErrorList { return ValidateUpdate(r, old) },
		ValidateStatusUpdate: func(_ context.Context, r, _ *appsv1.ReplicaSet) field.ErrorList {
			return ValidateStatus(&r.Status, field.NewPath("status"))
		},
		WarningsOnCreate: func(_ context.Context, r *appsv1.ReplicaSet) []string {
			return append(warnings.OfName(r.Name, "Pod names and hostnames"), warnings.OfTemplate(
				&r.Spec.Template, field.NewPath("spec", "template"),
			)...)
		},
		WarningsOnUpdate: func(_ context.Context, r, old *appsv1.ReplicaSet) []string {
			if r.Generation == old.Generation {
				return nil
			}
			return warnings.OfTemplate(&r.Spec.Template, field.NewPath("spec", "template"))
		},
		Fields: func(r *appsv1.ReplicaSet) fields.Set {
			return fields.Set{"status.replicas": itoa(r.Status.Replicas)}
		},
		FieldLabels: []string{"status.replicas"},
		Table:       printer,
	})
}

// SetDefaults fills in what a replica set leaves out.
func SetDefaults(r *appsv1.ReplicaSet) {
	if r.Spec.Replicas == nil {
		r.Spec.Replicas = ptr.To[int32](1)
	}
	defaults.SetTemplate(&r.Spec.Template)
}

var printer = table.Of(func(r *appsv1.ReplicaSet, now time.Time) []any {
	names, images := podspec.Summary(r.Spec.Template.Spec.Containers)
	return []any{
		r.Name, int64(ptr.Deref(r.Spec.Replicas, 0)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
		table.Since(r.CreationTimestamp, now), names, images, metav1.FormatLabelSelector(r.Spec.Selector),
	}
},
	table.Name,
	table.Column{Name: "Desired", Type: "integer", Description: "Pods that there should be."},
	table.Column{Name: "Current", Type: "integer", Description: "Pods that there are."},
	table.Column{Name: "Ready", Type: "integer", Description: "Pods that are ready."},
	table.Age,
	table.Column{Name: "Containers", Wide: true, Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Wide: true, Description: "Images of the containers in the template."},
	table.Column{Name: "Selector", Wide: true, Description: "Selector of the pods that belong to the set."},
)
