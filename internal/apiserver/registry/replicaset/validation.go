package replicaset

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
)

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// Validate checks a replica set, metadata aside.
func Validate(r *appsv1.ReplicaSet) field.ErrorList { return validate(r, nil) }

func validate(r *appsv1.ReplicaSet, old *corev1.PodTemplateSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := amount.NonNegative(path.Child("replicas"), int64(ptr.Deref(r.Spec.Replicas, 0)))
	errs = append(errs, amount.NonNegative(path.Child("minReadySeconds"), int64(r.Spec.MinReadySeconds))...)
	return append(errs, ValidateTemplate(r.Spec.Selector, &r.Spec.Template, old, path)...)
}

// ValidateUpdate checks a changed replica set, metadata aside. Its selector stays.
func ValidateUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	return append(validate(r, &old.Spec.Template), alike.Unchanged(
		r.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"),
	)...)
}

// ValidateTemplate checks what replica sets and deployments have in common: a
// selector that chooses something, and a template of pods that it chooses. The template
// was old before, which is nil for a new one.
func ValidateTemplate(s *metav1.LabelSelector, template, old *corev1.PodTemplateSpec,
	path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("selector")
	if s == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(
			errs, enough.LabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)...,
		)
		if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
			errs = append(errs, field.Invalid(at, s, "empty selector is invalid for deployment"))
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return append(errs, field.Invalid(at, s, "invalid label selector"))
	}
	at = path.Child("template")
	if !selector.Empty() && !selector.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(
			at.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`",
		))
	}
	errs = append(errs, podspec.ValidateTemplateUpdate(template, old, at)...)
	if policy := template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{
			corev1.RestartPolicyAlways,
		}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(
			at.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicaSet is not Supported",
		))
	}
	return errs
}

// ValidateStatus checks a status that a controller reports.
func ValidateStatus(s *appsv1.ReplicaSetStatus, path *field.Path) field.ErrorList {
	errs := amount.NonNegative(path.Child("replicas"), int64(s.Replicas))
	errs = append(errs, amount.NonNegative(path.Child("fullyLabeledReplicas"), int64(s.FullyLabeledReplicas))...)
	errs = append(errs, amount.NonNegative(path.Child("readyReplicas"), int64(s.ReadyReplicas))...)
	errs = append(errs, amount.NonNegative(path.Child("availableReplicas"), int64(s.AvailableReplicas))...)
	errs = append(errs, amount.NonNegative(path.Child("observedGeneration"), s.ObservedGeneration)...)
	if s.TerminatingReplicas != nil {
		errs = append(errs, amount.NonNegative(path.Child("terminatingReplicas"), int64(*s.TerminatingReplicas))...)
	}
	const most = "cannot be greater than status.replicas"
	if s.FullyLabeledReplicas > s.Replicas {
		errs = append(errs, field.Invalid(path.Child("fullyLabeledReplicas"), s.FullyLabeledReplicas, most))
	}
	if s.ReadyReplicas > s.Replicas {
		errs = append(errs, field.Invalid(path.Child("readyReplicas"), s.ReadyReplicas, most))
	}
	if s.AvailableReplicas > s.Replicas {
		errs = append(errs, field.Invalid(path.Child("availableReplicas"), s.AvailableReplicas, most))
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(
			path.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas",
		))
	}
	return errs
}
