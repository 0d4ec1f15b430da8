package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
)

// Validate checks a new DaemonSet, metadata aside.
func Validate(d *appsv1.DaemonSet) field.ErrorList {
	return validateSpec(&d.Spec, nil, field.NewPath("spec"))
}

// ValidateUpdate checks a changed DaemonSet, metadata aside. Its selector stays.
func ValidateUpdate(d, old *appsv1.DaemonSet) field.ErrorList {
	errs := alike.Unchanged(d.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))
	return append(errs, validateSpec(&d.Spec, &old.Spec.Template, field.NewPath("spec"))...)
}

// validateSpec checks a specification whose template was old before, which is nil for a
// new one.
func validateSpec(spec *appsv1.DaemonSetSpec, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := enough.LabelSelector(
		spec.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"),
	)
	if len(errs) == 0 && !enough.Selects(spec.Selector, spec.Template.Labels) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), spec.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	if s := spec.Selector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		errs = append(errs, field.Invalid(path.Child("selector"), s, "empty selector is invalid for daemonset"))
	}
	template := path.Child("template")
	errs = append(errs, podspec.ValidateTemplateUpdate(&spec.Template, old, template)...)
	if policy := spec.Template.Spec.RestartPolicy; policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(template.Child("spec", "restartPolicy"), policy, []corev1.RestartPolicy{
			corev1.RestartPolicyAlways,
		}))
	}
	if spec.Template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(
			template.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in DaemonSet is not Supported",
		))
	}
	errs = append(errs, amount.NonNegative(path.Child("minReadySeconds"), int64(spec.MinReadySeconds))...)
	errs = append(errs, validateStrategy(&spec.UpdateStrategy, path.Child("updateStrategy"))...)
	if limit := spec.RevisionHistoryLimit; limit != nil {
		errs = append(errs, amount.NonNegative(path.Child("revisionHistoryLimit"), int64(*limit))...)
	}
	return errs
}

func validateStrategy(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(path.Child("rollingUpdate"), "")}
		}
		return validateRollingUpdate(s.RollingUpdate, path.Child("rollingUpdate"))
	}
	return field.ErrorList{field.NotSupported(path, shown(s),
		[]appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType,
			appsv1.OnDeleteDaemonSetStrategyType})}
}

func validateRollingUpdate(r *appsv1.RollingUpdateDaemonSet, path *field.Path) field.ErrorList {
	unavailable, surge := value(r.MaxUnavailable), value(r.MaxSurge)
	unavailablePath, surgePath := path.Child("maxUnavailable"), path.Child("maxSurge")
	errs := amount.NumberOrPercent(unavailablePath, unavailable)
	errs = append(errs, amount.NumberOrPercent(surgePath, surge)...)
	errs = append(errs, amount.AtMostAll(unavailablePath, unavailable)...)
	errs = append(errs, amount.AtMostAll(surgePath, surge)...)
	mayLack, mayExceed := amount.Value(unavailable) != 0, amount.Value(surge) != 0
	switch {
	case mayLack && mayExceed:
		errs = append(errs, field.Invalid(surgePath, surge, "may not be set when maxUnavailable is non-zero"))
	case !mayLack && !mayExceed:
		errs = append(errs, field.Required(unavailablePath, "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func value(v *intstr.IntOrString) intstr.IntOrString {
	if v == nil {
		return intstr.IntOrString{}
	}
	return *v
}

// shown is how error texts spell a strategy: all fields, under their Go names.
func shown(s *appsv1.DaemonSetUpdateStrategy) any {
	type rolling struct{ MaxUnavailable, MaxSurge intstr.IntOrString }
	out := struct {
		Type          appsv1.DaemonSetUpdateStrategyType
		RollingUpdate *rolling
	}{Type: s.Type}
	if r := s.RollingUpdate; r != nil {
		out.RollingUpdate = &rolling{value(r.MaxUnavailable), value(r.MaxSurge)}
	}
	return out
}

// ValidateStatusUpdate checks a status that a controller reports.
func ValidateStatusUpdate(status, old *appsv1.DaemonSetStatus) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"currentNumberScheduled", int64(status.CurrentNumberScheduled)},
		{"numberMisscheduled", int64(status.NumberMisscheduled)},
		{"desiredNumberScheduled", int64(status.DesiredNumberScheduled)},
		{"numberReady", int64(status.NumberReady)},
		{"observedGeneration", status.ObservedGeneration},
		{"updatedNumberScheduled", int64(status.UpdatedNumberScheduled)},
		{"numberAvailable", int64(status.NumberAvailable)},
		{"numberUnavailable", int64(status.NumberUnavailable)},
	} {
		errs = append(errs, amount.NonNegative(path.Child(f.name), f.value)...)
	}
	at := path.Child("collisionCount")
	if n := status.CollisionCount; n != nil {
		errs = append(errs, amount.NonNegative(at, int64(*n))...)
	}
	if before := old.CollisionCount; before != nil {
		var now int32
		if status.CollisionCount != nil {
			now = *status.CollisionCount
		}
		if now < *before {
			errs = append(errs, field.Invalid(at, now, "cannot be decremented"))
		}
	}
	return errs
}
