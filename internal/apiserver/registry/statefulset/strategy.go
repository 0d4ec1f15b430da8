// Package statefulset describes the kind StatefulSet of apps/v1.
package statefulset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	template := field.NewPath("spec", "template")
	return resource.Of[appsv1.StatefulSet, appsv1.StatefulSetList](resource.Kind{
		GroupVersion: appsv1.SchemeGroupVersion, Kind: "StatefulSet",
		Plural: "statefulsets", Singular: "statefulset", ShortNames: []string{"sts"}, Categories: []string{"all"},
	}, resource.Rules[appsv1.StatefulSet]{
		Default:        SetDefaults,
		Spec:           func(s *appsv1.StatefulSet) any { return &s.Spec },
		Status:         func(s *appsv1.StatefulSet) any { return &s.Status },
		Validate:       func(_ context.Context, s *appsv1.StatefulSet) field.ErrorList { return Validate(s) },
		ValidateUpdate: func(_ context.Context, s, old *appsv1.StatefulSet) field.ErrorList { return ValidateUpdate(s, old) },
		ValidateStatusUpdate: func(_ context.Context, s, old *appsv1.StatefulSet) field.ErrorList {
			return ValidateStatusUpdate(&s.Status, &old.Status)
		},
		WarningsOnCreate: func(_ context.Context, s *appsv1.StatefulSet) []string {
			return append(warnings.OfName(s.Name, "Pod names and hostnames"), warnings.OfTemplate(&s.Spec.Template, template)...)
		},
		WarningsOnUpdate: func(_ context.Context, s, old *appsv1.StatefulSet) []string {
			if s.Generation == old.Generation {
				return nil
			}
			return warnings.OfTemplate(&s.Spec.Template, template)
		},
		Table: printer,
	})
}

const revisionsKept = 10

// SetDefaults fills in what a StatefulSet leaves out. By default one pod after the
// other is made, in the order of their numbers, and replaced, in the opposite order.
func SetDefaults(s *appsv1.StatefulSet) {
	spec := &s.Spec
	if spec.PodManagementPolicy == "" {
		spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if spec.UpdateStrategy.Type == "" {
		spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		if spec.UpdateStrategy.RollingUpdate == nil {
			spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
	}
	if r := spec.UpdateStrategy.RollingUpdate; r != nil &&
		spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		if r.Partition == nil {
			r.Partition = new(int32)
		}
		if r.MaxUnavailable == nil {
			r.MaxUnavailable = ptr.To(intstr.FromInt32(1))
		}
	}
	if spec.PersistentVolumeClaimRetentionPolicy == nil {
		spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	}
	if p := spec.PersistentVolumeClaimRetentionPolicy; p.WhenDeleted == "" {
		p.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	if p := spec.PersistentVolumeClaimRetentionPolicy; p.WhenScaled == "" {
		p.WhenScaled = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	if spec.Replicas == nil {
		spec.Replicas = ptr.To[int32](1)
	}
	if spec.RevisionHistoryLimit == nil {
		spec.RevisionHistoryLimit = ptr.To[int32](revisionsKept)
	}
	defaults.SetTemplate(&spec.Template)
	for i := range spec.VolumeClaimTemplates {
		c := &spec.VolumeClaimTemplates[i]
		c.APIVersion, c.Kind = "v1", "PersistentVolumeClaim"
		if c.Status.Phase == "" {
			c.Status.Phase = corev1.ClaimPending
		}
		defaults.SetClaim(&c.Spec)
	}
}

var printer = table.Of(func(s *appsv1.StatefulSet, now time.Time) []any {
	names, images := podspec.Summary(s.Spec.Template.Spec.Containers)
	return []any{
		s.Name,
		fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0)),
		table.Since(s.CreationTimestamp, now),
		names,
		images,
	}
},
	table.Name,
	table.Column{Name: "Ready", Description: "Pods that are ready, of those wanted."},
	table.Age,
	table.Column{Name: "Containers", Wide: true, Description: "Names of the containers in the template."},
	table.Column{Name: "Images", Wide: true, Description: "Images of the containers in the template."},
)
