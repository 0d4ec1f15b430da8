package deployment

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/apiserver/registry/replicaset"
)

// Validate checks a deployment, metadata aside.
func Validate(d *appsv1.Deployment) field.ErrorList { return validate(d, nil) }

func validate(d *appsv1.Deployment, old *corev1.PodTemplateSpec) field.ErrorList {
	spec, path := &d.Spec, field.NewPath("spec")
	errs := amount.NonNegative(path.Child("replicas"), int64(ptr.Deref(spec.Replicas, 0)))
	errs = append(errs, replicaset.ValidateTemplate(spec.Selector, &spec.Template, old, path)...)
	errs = append(errs, validateStrategy(&spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, amount.NonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))...)
	if v := spec.RevisionHistoryLimit; v != nil {
		errs = append(errs, amount.NonNegative(path.Child("revisionHistoryLimit"), int64(*v))...)
	}
	if v := spec.ProgressDeadlineSeconds; v != nil {
		at := path.Child("progressDeadlineSeconds")
		errs = append(errs, amount.NonNegative(at, int64(*v))...)
		if *v <= spec.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *v, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

// ValidateUpdate checks a changed deployment, metadata aside. Its selector stays.
func ValidateUpdate(d, old *appsv1.Deployment) field.ErrorList {
	return append(validate(d, &old.Spec.Template), alike.Unchanged(
		d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"),
	)...)
}

func validateStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(
				path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'",
			)}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(path.Child("rollingUpdate"), "this should be defaulted and never be nil")}
		}
		return validateRollingUpdate(s.RollingUpdate, path.Child("rollingUpdate"))
	}
	return field.ErrorList{field.NotSupported(path, shown(s),
		[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
}

func validateRollingUpdate(r *appsv1.RollingUpdateDeployment, path *field.Path) field.ErrorList {
	unavailable, surge := ptr.Deref(r.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(r.MaxSurge, intstr.IntOrString{})
	at := path.Child("maxUnavailable")
	errs := amount.NumberOrPercent(at, unavailable)
	errs = append(errs, amount.NumberOrPercent(path.Child("maxSurge"), surge)...)
	if amount.Value(unavailable) == 0 && amount.Value(surge) == 0 {
		errs = append(errs, field.Invalid(at, unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, amount.AtMostAll(at, unavailable)...)
}

// shown is how error texts spell a strategy: all fields, under their Go names.
func shown(s *appsv1.DeploymentStrategy) any {
	type rolling struct{ MaxUnavailable, MaxSurge intstr.IntOrString }
	out := struct {
		Type          appsv1.DeploymentStrategyType
		RollingUpdate *rolling
	}{Type: s.Type}
	if r := s.RollingUpdate; r != nil {
		out.RollingUpdate = &rolling{
			ptr.Deref(r.MaxUnavailable, intstr.IntOrString{}),
			ptr.Deref(r.MaxSurge, intstr.IntOrString{}),
		}
	}
	return out
}

// ValidateStatusUpdate checks a status that a controller reports.
func ValidateStatusUpdate(s, old *appsv1.DeploymentStatus) field.ErrorList {
	path := field.NewPath("status")
	errs := amount.NonNegative(path.Child("observedGeneration"), s.ObservedGeneration)
	for _, f := range []struct {
		name string
		n    int32
	}{
		{"replicas", s.Replicas}, {"updatedReplicas", s.UpdatedReplicas}, {"readyReplicas", s.ReadyReplicas},
		{"availableReplicas", s.AvailableReplicas}, {"unavailableReplicas", s.UnavailableReplicas},
		{"terminatingReplicas", ptr.Deref(s.TerminatingReplicas, 0)}, {"collisionCount", ptr.Deref(s.CollisionCount, 0)},
	} {
		errs = append(errs, amount.NonNegative(path.Child(f.name), int64(f.n))...)
	}
	const most = "cannot be greater than status.replicas"
	if s.UpdatedReplicas > s.Replicas {
		errs = append(errs, field.Invalid(path.Child("updatedReplicas"), s.UpdatedReplicas, most))
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
	if before := old.CollisionCount; before != nil && ptr.Deref(s.CollisionCount, 0) < *before {
		errs = append(errs, field.Invalid(
			path.Child("collisionCount"), ptr.Deref(s.CollisionCount, 0), "cannot be decremented",
		))
	}
	return errs
}
