package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/objects/job"
)

// Limits of Indexed Jobs. The sets of their indexes must fit into the status.
const (
	mostParallel    = 100_000
	mostFailed      = 100_000
	manyCompletions = 100_000
	limitWithMany   = 10_000
	longestManager  = 63
)

func selector(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

// Validate checks a new Job, metadata aside.
func Validate(j *batchv1.Job) field.ErrorList { return validate(j, nil) }

// validate checks a Job whose pod template was old before, which is nil for a new one.
func validate(j *batchv1.Job, old *corev1.PodTemplateSpec) field.ErrorList {
	path := field.NewPath("spec")
	wrong := validateSelector(j.Spec.Selector, path.Child("selector"))
	errs := validateGenerated(j, path, len(wrong) == 0)
	errs = append(errs, validateSpec(&j.Spec, old, path)...)
	errs = append(errs, wrong...)
	if len(wrong) == 0 && !enough.Selects(j.Spec.Selector, j.Spec.Template.Labels) {
		errs = append(errs, field.Invalid(
			path.Child("template", "metadata", "labels"), j.Spec.Template.Labels, "`selector` does not match template `labels`",
		))
	}
	if n := ptr.Deref(j.Spec.Completions, 0); job.IsIndexed(j) && n > 0 {
		if host := fmt.Sprintf("%s-%d", j.Name, n-1); len(utilvalidation.IsDNS1123Label(host)) > 0 {
			errs = append(errs, field.Invalid(
				field.NewPath("metadata", "name"), j.Name, "will not able to create pod with invalid DNS label: "+host,
			))
		}
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	return enough.LabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// validateGenerated checks that labels and selector are those that were generated,
// if that was wanted: then no other controller's pods can be mistaken for the Job's.
func validateGenerated(j *batchv1.Job, path *field.Path, isValid bool) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	expected, at := generatedLabels(j), path.Child("template", "metadata", "labels")
	for _, key := range []string{legacyControllerUID, legacyJobName, batchv1.ControllerUidLabel, batchv1.JobNameLabel} {
		if got, there := j.Spec.Template.Labels[key]; !there {
			errs = append(errs, field.Required(at.Key(key), fmt.Sprintf("must be '%s'", expected[key])))
		} else if got != expected[key] {
			errs = append(errs, field.Invalid(at.Key(key), j.Spec.Template.Labels, fmt.Sprintf("must be '%s'", expected[key])))
		}
	}
	if isValid && !enough.Selects(j.Spec.Selector, expected) {
		errs = append(errs, field.Invalid(path.Child("selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// ValidateTemplate checks the template of Jobs that a CronJob makes. It was old before,
// which is nil for a new one.
func ValidateTemplate(t, old *batchv1.JobTemplateSpec, path *field.Path) field.ErrorList {
	var before *corev1.PodTemplateSpec
	if old != nil {
		before = &old.Spec.Template
	}
	errs := validateSpec(&t.Spec, before, path.Child("spec"))
	if t.Spec.Selector != nil {
		errs = append(errs, field.Invalid(
			path.Child("spec", "selector"), t.Spec.Selector, "`selector` will be auto-generated",
		))
	}
	if ptr.Deref(t.Spec.ManualSelector, false) {
		errs = append(errs, field.NotSupported(path.Child("spec", "manualSelector"), *t.Spec.ManualSelector, []string{
			"nil", "false",
		}))
	}
	return errs
}

// validateSpec checks what Jobs and templates of Jobs have in common. The pod template
// was old before, which is nil for a new one.
func validateSpec(s *batchv1.JobSpec, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := numbers(s, path)
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if s.ManagedBy != nil {
		at := path.Child("managedBy")
		errs = append(errs, utilvalidation.IsDomainPrefixedPath(at, *s.ManagedBy)...)
		if len(*s.ManagedBy) > longestManager {
			errs = append(errs, field.TooLong(at, "", longestManager))
		}
	}
	if s.Scheduling != nil {
		errs = append(errs, field.Forbidden(path.Child("scheduling"), "pods of Jobs are scheduled one by one"))
	}
	errs = append(errs, validateMode(s, path)...)
	errs = append(errs, validatePolicies(s, path)...)
	template := path.Child("template")
	errs = append(errs, podspec.ValidateTemplateUpdate(&s.Template, old, template)...)
	return append(errs, validateRestarts(s, template.Child("spec", "restartPolicy"))...)
}

func numbers(s *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	for _, f := range []struct {
		name string
		n    *int32
	}{
		{"parallelism", s.Parallelism}, {"completions", s.Completions}, {"backoffLimit", s.BackoffLimit},
		{"ttlSecondsAfterFinished", s.TTLSecondsAfterFinished}, {"backoffLimitPerIndex", s.BackoffLimitPerIndex},
		{"maxFailedIndexes", s.MaxFailedIndexes},
	} {
		if f.n != nil {
			errs = append(errs, amount.NonNegative(path.Child(f.name), int64(*f.n))...)
		}
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, amount.NonNegative(path.Child("activeDeadlineSeconds"), *s.ActiveDeadlineSeconds)...)
	}
	return errs
}

func validateMode(s *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	switch mode := ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion); mode {
	case batchv1.IndexedCompletion:
		return validateIndexed(s, path)
	case batchv1.NonIndexedCompletion:
		if s.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *s.BackoffLimitPerIndex, needsIndexes))
		}
		if s.MaxFailedIndexes != nil {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), *s.MaxFailedIndexes, needsIndexes))
		}
		return errs
	default:
		return field.ErrorList{field.NotSupported(path.Child("completionMode"), mode, []batchv1.CompletionMode{
			batchv1.NonIndexedCompletion, batchv1.IndexedCompletion,
		})}
	}
}

const needsIndexes = "requires indexed completion mode"

func validateIndexed(s *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	parallel, failed := ptr.Deref(s.Parallelism, 0), ptr.Deref(s.MaxFailedIndexes, 0)
	atParallel, atFailed := path.Child("parallelism"), path.Child("maxFailedIndexes")
	if s.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	if parallel > mostParallel {
		errs = append(errs, field.Invalid(
			atParallel, parallel, fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", mostParallel),
		))
	}
	if s.Completions != nil && failed > *s.Completions {
		errs = append(errs, field.Invalid(atFailed, failed, "must be less than or equal to completions"))
	}
	if failed > mostFailed {
		errs = append(errs, field.Invalid(atFailed, failed, fmt.Sprintf("must be less than or equal to %d", mostFailed)))
	}
	if s.BackoffLimitPerIndex == nil || ptr.Deref(s.Completions, 0) <= manyCompletions {
		return errs
	}
	const tooMany = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
	if s.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(
			atFailed, fmt.Sprintf("must be specified when completions is above %d", manyCompletions),
		))
	}
	if parallel > limitWithMany {
		errs = append(errs, field.Invalid(atParallel, parallel, fmt.Sprintf(tooMany, limitWithMany, manyCompletions)))
	}
	if failed > limitWithMany {
		errs = append(errs, field.Invalid(atFailed, failed, fmt.Sprintf(tooMany, limitWithMany, manyCompletions)))
	}
	return errs
}

func validateRestarts(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	switch policy := s.Template.Spec.RestartPolicy; {
	case policy == corev1.RestartPolicyAlways || policy == "":
		return field.ErrorList{field.Required(
			at, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever),
		)}
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		return field.ErrorList{field.NotSupported(at, policy, []corev1.RestartPolicy{
			corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever,
		})}
	case policy != corev1.RestartPolicyNever && s.PodFailurePolicy != nil:
		return field.ErrorList{field.Invalid(
			at, policy, fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever),
		)}
	}
	return nil
}
