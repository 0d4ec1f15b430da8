package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/objects/job"
)

// ValidateUpdate checks a changed Job, metadata aside.
func ValidateUpdate(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate(j, &old.Spec.Template)
	errs = append(errs, validateCompletions(j, old, path)...)
	errs = append(errs, alike.Unchanged(j.Spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	before := &old.Spec.Template
	if mayReschedule(old) {
		before = rescheduled(before, &j.Spec.Template)
	}
	errs = append(errs, alike.Unchanged(j.Spec.Template, *before, path.Child("template"))...)
	errs = append(errs, alike.Unchanged(
		j.Spec.CompletionMode, old.Spec.CompletionMode, path.Child("completionMode"),
	)...)
	errs = append(errs, alike.Unchanged(
		j.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy, path.Child("podFailurePolicy"),
	)...)
	errs = append(errs, alike.Unchanged(
		j.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"),
	)...)
	errs = append(
		errs, alike.Unchanged(j.Spec.ManagedBy, old.Spec.ManagedBy, path.Child("managedBy"))...,
	)
	return append(errs, alike.Unchanged(
		j.Spec.SuccessPolicy, old.Spec.SuccessPolicy, path.Child("successPolicy"),
	)...)
}

// validateCompletions lets Indexed Jobs grow and shrink, with as many pods at a
// time as they have indexes.
func validateCompletions(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	at := path.Child("completions")
	if !job.IsIndexed(j) {
		return alike.Unchanged(j.Spec.Completions, old.Spec.Completions, at)
	}
	if ptr.Equal(j.Spec.Completions, old.Spec.Completions) || j.Spec.Completions == nil ||
		*j.Spec.Completions == ptr.Deref(j.Spec.Parallelism, 0) {
		return nil
	}
	return field.ErrorList{field.Invalid(
		at, *j.Spec.Completions, fmt.Sprintf("can only be modified in tandem with %s", path.Child("parallelism")),
	)}
}

// rescheduled returns the old template with all that may change while a Job has no
// pods as it is in the new one: where pods go, and what their containers ask for.
func rescheduled(old, template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	out := old.DeepCopy()
	out.Labels, out.Annotations = template.Labels, template.Annotations
	spec := &out.Spec
	from := &template.Spec
	spec.NodeSelector, spec.Tolerations, spec.SchedulingGates = from.NodeSelector, from.Tolerations, from.SchedulingGates
	var nodes *corev1.NodeAffinity
	if a := template.Spec.Affinity; a != nil {
		nodes = a.NodeAffinity
	}
	if spec.Affinity == nil && template.Spec.Affinity != nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity != nil {
		spec.Affinity.NodeAffinity = nodes
		if template.Spec.Affinity == nil && alike.Values(*spec.Affinity, corev1.Affinity{}) {
			spec.Affinity = nil
		}
	}
	askAs(spec.Containers, template.Spec.Containers)
	askAs(spec.InitContainers, template.Spec.InitContainers)
	return out
}

func askAs(old, containers []corev1.Container) {
	if len(old) != len(containers) {
		return
	}
	for i := range old {
		if old[i].Name == containers[i].Name {
			old[i].Resources = containers[i].Resources
		}
	}
}
