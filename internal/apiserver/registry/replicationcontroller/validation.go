package replicationcontroller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/apiserver/registry/replicaset"
)

// Validate checks a controller, metadata aside. Unlike that of a ReplicaSet, its selector may change.
func Validate(c *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	errs := amount.NonNegative(path.Child("minReadySeconds"), int64(c.Spec.MinReadySeconds))
	if len(c.Spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if c.Spec.Replicas == nil {
		errs = append(errs, field.Required(path.Child("replicas"), ""))
	} else {
		errs = append(errs, amount.NonNegative(path.Child("replicas"), int64(*c.Spec.Replicas))...)
	}
	return append(errs, validateTemplate(c.Spec.Template, c.Spec.Selector, path.Child("template"))...)
}

func validateTemplate(template *corev1.PodTemplateSpec, selector labels.Set, path *field.Path) field.ErrorList {
	if template == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if !selector.AsSelectorPreValidated().Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(
			path.Child("metadata", "labels"), template.Labels, "`selector` does not match template `labels`",
		))
	}
	errs = append(errs, podspec.ValidateTemplate(template, path)...)
	if policy := template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{
			corev1.RestartPolicyAlways,
		}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(
			path.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported",
		))
	}
	return errs
}

// ValidateStatus checks a status that a controller reports. Its numbers are those of a ReplicaSet.
func ValidateStatus(s *corev1.ReplicationControllerStatus, path *field.Path) field.ErrorList {
	return replicaset.ValidateStatus(&appsv1.ReplicaSetStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
		AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration,
	}, path)
}
