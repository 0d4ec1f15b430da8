package statefulset

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
)

// Validate checks a new StatefulSet, metadata aside.
func Validate(s *appsv1.StatefulSet) field.ErrorList { return validate(s, nil) }

// validate checks a StatefulSet whose template was old before, which is nil for a new one.
func validate(s *appsv1.StatefulSet, old *corev1.PodTemplateSpec) field.ErrorList {
	spec, path := &s.Spec, field.NewPath("spec")
	errs := validatePolicies(spec, path)
	errs = append(errs, amount.NonNegative(path.Child("replicas"), int64(ptr.Deref(spec.Replicas, 0)))...)
	errs = append(errs, amount.NonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))...)
	errs = append(errs, amount.NonNegative(
		path.Child("revisionHistoryLimit"), int64(ptr.Deref(spec.RevisionHistoryLimit, 0)),
	)...)
	if o := spec.Ordinals; o != nil {
		errs = append(errs, amount.NonNegative(path.Child("ordinals.start"), int64(o.Start))...)
	}
	errs = append(errs, validateClaims(spec.VolumeClaimTemplates, path.Child("volumeClaimTemplates"))...)
	errs = append(errs, validateSelector(spec, path)...)
	template := path.Child("template")
	errs = append(errs, podspec.ValidateTemplateUpdate(withClaims(spec), old, template)...)
	if policy := spec.Template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(template.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{
			corev1.RestartPolicyAlways,
		}))
	}
	if spec.Template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(
			template.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in StatefulSet is not Supported",
		))
	}
	return errs
}

func validateSelector(spec *appsv1.StatefulSetSpec, path *field.Path) (errs field.ErrorList) {
	at := path.Child("selector")
	if spec.Selector == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	errs = enough.LabelSelector(spec.Selector, metav1validation.LabelSelectorValidationOptions{}, at)
	if len(spec.Selector.MatchLabels)+len(spec.Selector.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(at, spec.Selector, "empty selector is invalid for statefulset"))
	}
	if len(errs) == 0 && !enough.Selects(spec.Selector, spec.Template.Labels) {
		errs = append(errs, field.Invalid(
			path.Child("template", "metadata", "labels"), spec.Template.Labels, "`selector` does not match template `labels`",
		))
	}
	return errs
}

func validatePolicies(spec *appsv1.StatefulSetSpec, path *field.Path) (errs field.ErrorList) {
	at := path.Child("podManagementPolicy")
	switch spec.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, field.Invalid(
			at, spec.PodManagementPolicy,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement),
		))
	}
	at = path.Child("updateStrategy")
	rolling := spec.UpdateStrategy.RollingUpdate
	switch spec.UpdateStrategy.Type {
	case "":
		errs = append(errs, field.Required(at, ""))
	case appsv1.OnDeleteStatefulSetStrategyType:
		if rolling != nil {
			errs = append(errs, field.Invalid(
				at.Child("rollingUpdate"), rolling,
				fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType),
			))
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if rolling != nil {
			errs = append(errs, validateRolling(rolling, at.Child("rollingUpdate"))...)
		}
	default:
		errs = append(errs, field.Invalid(
			at, spec.UpdateStrategy,
			fmt.Sprintf(
				"must be '%s' or '%s'", appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType,
			),
		))
	}
	if p := spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		at, kinds := path.Child("persistentVolumeClaimRetentionPolicy"), []appsv1.PersistentVolumeClaimRetentionPolicyType{
			appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		}
		for name, value := range map[string]appsv1.PersistentVolumeClaimRetentionPolicyType{
			"whenDeleted": p.WhenDeleted,
			"whenScaled":  p.WhenScaled,
		} {
			if value != kinds[0] && value != kinds[1] {
				errs = append(errs, field.NotSupported(at.Child(name), value, kinds))
			}
		}
	}
	return errs
}

func validateRolling(r *appsv1.RollingUpdateStatefulSetStrategy, path *field.Path) field.ErrorList {
	errs := amount.NonNegative(path.Child("partition"), int64(ptr.Deref(r.Partition, 0)))
	if r.MaxUnavailable == nil {
		return errs
	}
	at := path.Child("maxUnavailable")
	errs = append(errs, amount.NumberOrPercent(at, *r.MaxUnavailable)...)
	if amount.Value(*r.MaxUnavailable) == 0 {
		errs = append(errs, field.Invalid(at, *r.MaxUnavailable, "cannot be 0"))
	}
	return append(errs, amount.AtMostAll(at, *r.MaxUnavailable)...)
}

// validateClaims checks what pods claim. Each claim is a volume of the pod's, under its own name.
func validateClaims(claims []corev1.PersistentVolumeClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range enough.Each(claims, &errs) {
		c, at := &claims[i], path.Index(i)
		name := at.Child("metadata", "name")
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(name, ""))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(name, c.Name))
		default:
			for _, text := range utilvalidation.IsDNS1123Label(c.Name) {
				errs = append(errs, field.Invalid(name, c.Name, text))
			}
		}
		seen[c.Name] = true
		errs = append(errs, podspec.ValidateClaim(&c.Spec, nil, at.Child("spec"))...)
	}
	return errs
}

// withClaims is the template with the volumes that pods have by their claims.
func withClaims(spec *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	if len(spec.VolumeClaimTemplates) == 0 {
		return &spec.Template
	}
	t := spec.Template.DeepCopy()
	for i := range spec.VolumeClaimTemplates {
		name := spec.VolumeClaimTemplates[i].Name
		t.Spec.Volumes = slices.DeleteFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	}
	for i := range spec.VolumeClaimTemplates {
		if name := spec.VolumeClaimTemplates[i].Name; name != "" {
			t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
	return t
}

// ValidateUpdate checks a changed StatefulSet, metadata aside.
func ValidateUpdate(s, old *appsv1.StatefulSet) field.ErrorList {
	errs := validate(s, &old.Spec.Template)
	same := s.Spec.DeepCopy()
	same.Replicas, same.Template, same.UpdateStrategy = old.Spec.Replicas, old.Spec.Template, old.Spec.UpdateStrategy
	same.MinReadySeconds, same.Ordinals = old.Spec.MinReadySeconds, old.Spec.Ordinals
	same.RevisionHistoryLimit = old.Spec.RevisionHistoryLimit
	same.PersistentVolumeClaimRetentionPolicy = old.Spec.PersistentVolumeClaimRetentionPolicy
	if !alike.Values(*same, old.Spec) {
		errs = append(errs, field.Forbidden(
			field.NewPath("spec"),
			"updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "+
				"'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
		))
	}
	return errs
}

// ValidateStatusUpdate checks a status that a controller reports.
func ValidateStatusUpdate(s, old *appsv1.StatefulSetStatus) field.ErrorList {
	path := field.NewPath("status")
	errs := amount.NonNegative(path.Child("replicas"), int64(s.Replicas))
	for _, f := range []struct {
		name string
		n    int32
	}{
		{"readyReplicas", s.ReadyReplicas},
		{"currentReplicas", s.CurrentReplicas},
		{"updatedReplicas", s.UpdatedReplicas},
		{"availableReplicas", s.AvailableReplicas},
	} {
		errs = append(errs, amount.NonNegative(path.Child(f.name), int64(f.n))...)
		if f.n > s.Replicas {
			errs = append(errs, field.Invalid(path.Child(f.name), f.n, "cannot be greater than status.replicas"))
		}
	}
	errs = append(errs, amount.NonNegative(path.Child("observedGeneration"), s.ObservedGeneration)...)
	errs = append(errs, amount.NonNegative(path.Child("collisionCount"), int64(ptr.Deref(s.CollisionCount, 0)))...)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(
			path.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than status.readyReplicas",
		))
	}
	if before := old.CollisionCount; before != nil && ptr.Deref(s.CollisionCount, 0) < *before {
		errs = append(errs, field.Invalid(
			path.Child("collisionCount"), ptr.Deref(s.CollisionCount, 0), "cannot be decremented",
		))
	}
	return errs
}
