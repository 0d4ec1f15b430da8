// Package devices describes the kinds of resource.k8s.io/v1, by which drivers offer devices and pods claim them:
// DeviceClass, ResourceClaim, ResourceClaimTemplate and ResourceSlice.
package devices

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definitions returns the four kinds.
func Definitions() []resource.Definition {
	return []resource.Definition{class(), claim(), template(), slice()}
}

var specPath = field.NewPath("spec")

func class() resource.Definition {
	return resource.Of[resourcev1.DeviceClass, resourcev1.DeviceClassList](resource.Kind{
		GroupVersion: resourcev1.SchemeGroupVersion, Kind: "DeviceClass", Plural: "deviceclasses", Singular: "deviceclass",
		ClusterScoped: true,
	}, resource.Rules[resourcev1.DeviceClass]{
		Spec: func(c *resourcev1.DeviceClass) any { return &c.Spec },
		Validate: func(_ context.Context, c *resourcev1.DeviceClass) field.ErrorList {
			return ValidateClass(c, nil)
		},
		ValidateUpdate: func(_ context.Context, c, old *resourcev1.DeviceClass) field.ErrorList {
			return ValidateClass(c, old)
		},
		WarningsOnCreate: func(_ context.Context, c *resourcev1.DeviceClass) []string { return classWarnings(c) },
		WarningsOnUpdate: func(_ context.Context, c, _ *resourcev1.DeviceClass) []string { return classWarnings(c) },
		Table: table.Of(func(c *resourcev1.DeviceClass, now time.Time) []any {
			return []any{c.Name, table.Since(c.CreationTimestamp, now)}
		}, table.Name, table.Age),
	})
}

func classWarnings(c *resourcev1.DeviceClass) []string {
	if c.Spec.ExtendedResourceName == nil {
		return nil
	}
	return []string{
		specPath.Child("extendedResourceName").String() +
			": it is kept, and no pod gets a device by it; pods name the class in a resource claim",
	}
}

// ValidateClass checks a class, metadata aside. Expressions that are as they were are not judged by newer rules.
func ValidateClass(c, old *resourcev1.DeviceClass) field.ErrorList {
	keptSelectors := old != nil && alike.Values(c.Spec.Selectors, old.Spec.Selectors)
	keptConfig := old != nil && alike.Values(c.Spec.Config, old.Spec.Config)
	errs := validateSelectors(c.Spec.Selectors, specPath.Child("selectors"), keptSelectors)
	errs = append(errs, each(c.Spec.Config, resourcev1.DeviceConfigMaxSize, specPath.Child("config"),
		func(config resourcev1.DeviceClassConfiguration, at *field.Path) field.ErrorList {
			return validateConfiguration(config.DeviceConfiguration, at, keptConfig)
		})...)
	if name := c.Spec.ExtendedResourceName; name != nil && !isExtendedResource(*name) {
		errs = append(errs, field.Invalid(
			specPath.Child("extendedResourceName"), *name, "must be a valid extended resource name",
		))
	}
	return errs
}

func template() resource.Definition {
	return resource.Of[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](resource.Kind{
		GroupVersion: resourcev1.SchemeGroupVersion, Kind: "ResourceClaimTemplate", Plural: "resourceclaimtemplates",
		Singular: "resourceclaimtemplate",
	}, resource.Rules[resourcev1.ResourceClaimTemplate]{
		Default: func(t *resourcev1.ResourceClaimTemplate) { defaultClaim(&t.Spec.Spec) },
		PrepareForCreate: func(_ context.Context, t *resourcev1.ResourceClaimTemplate) {
			dropUnknown(&t.Spec.Spec)
		},
		Validate: func(_ context.Context, t *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return ValidateTemplate(t)
		},
		ValidateUpdate: func(_ context.Context, t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return ValidateTemplateUpdate(t, old)
		},
		Table: table.Of(func(t *resourcev1.ResourceClaimTemplate, now time.Time) []any {
			return []any{t.Name, table.Since(t.CreationTimestamp, now)}
		}, table.Name, table.Age),
	})
}

// ValidateTemplate checks a template, its own metadata aside.
func ValidateTemplate(t *resourcev1.ResourceClaimTemplate) field.ErrorList {
	errs := podspec.ValidateTemplateMetadata(&t.Spec.ObjectMeta, specPath.Child("metadata"))
	return append(errs, validateClaimSpec(&t.Spec.Spec, specPath.Child("spec"))...)
}

// ValidateTemplateUpdate checks a changed template. What it says never changes, so it is not judged again by newer
// rules.
func ValidateTemplateUpdate(t, old *resourcev1.ResourceClaimTemplate) field.ErrorList {
	return alike.Unchanged(t.Spec, old.Spec, specPath)
}

// defaultClaim fills in what a claim leaves out.
func defaultClaim(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			defaultMode(&e.AllocationMode, &e.Count)
			defaultTolerations(e.Tolerations)
		}
		for j := range r.FirstAvailable {
			sub := &r.FirstAvailable[j]
			defaultMode(&sub.AllocationMode, &sub.Count)
			defaultTolerations(sub.Tolerations)
		}
	}
}

func defaultMode(mode *resourcev1.DeviceAllocationMode, count *int64) {
	if *mode == "" {
		*mode = resourcev1.DeviceAllocationModeExactCount
	}
	if *mode == resourcev1.DeviceAllocationModeExactCount && *count == 0 {
		*count = 1
	}
}

func defaultTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		if tolerations[i].Operator == "" {
			tolerations[i].Operator = resourcev1.DeviceTolerationOpEqual
		}
	}
}

// dropUnknown takes away what only later versions act on.
func dropUnknown(s *resourcev1.ResourceClaimSpec) {
	for i := range s.Devices.Requests {
		r := &s.Devices.Requests[i]
		if r.Exactly != nil {
			r.Exactly.DerivedAttributes = nil
		}
		for j := range r.FirstAvailable {
			r.FirstAvailable[j].DerivedAttributes = nil
		}
	}
}

// defaultTaints says since when devices have their taints.
func defaultTaints(s *resourcev1.ResourceSliceSpec) {
	for i := range s.Devices {
		for j := range s.Devices[i].Taints {
			if taint := &s.Devices[i].Taints[j]; taint.TimeAdded == nil {
				taint.TimeAdded = &metav1.Time{Time: time.Now().Truncate(time.Second)}
			}
		}
	}
}
