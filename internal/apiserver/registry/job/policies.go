package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/registry/amount"
	"github.com/everynode/everynode/internal/objects/indexset"
)

// Limits of the policies of a Job.
const (
	mostRules       = 20
	mostPatterns    = 20
	mostExitCodes   = 255
	longestIndexSet = 64 * 1024
)

func validatePolicies(s *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	if s.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(s, path.Child("podFailurePolicy", "rules"))...)
	}
	if s.SuccessPolicy != nil {
		at := path.Child("successPolicy")
		if ptr.Deref(s.CompletionMode, "") != batchv1.IndexedCompletion {
			errs = append(errs, field.Invalid(at, *s.SuccessPolicy, needsIndexes))
		} else {
			errs = append(errs, validateSuccessPolicy(s, at.Child("rules"))...)
		}
	}
	if p := s.PodReplacementPolicy; p != nil {
		at, allowed := path.Child("podReplacementPolicy"), []batchv1.PodReplacementPolicy{
			batchv1.Failed, batchv1.TerminatingOrFailed,
		}
		if s.PodFailurePolicy != nil {
			allowed = allowed[:1]
		}
		if !slices.Contains(allowed, *p) {
			errs = append(errs, field.NotSupported(at, *p, allowed))
		}
	}
	return errs
}

func validateFailurePolicy(s *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	rules := s.PodFailurePolicy.Rules
	if len(rules) > mostRules {
		errs = append(errs, field.TooMany(path, len(rules), mostRules))
	}
	var containers []string
	for _, list := range [][]corev1.Container{s.Template.Spec.Containers, s.Template.Spec.InitContainers} {
		for i := range list {
			containers = append(containers, list[i].Name)
		}
	}
	for i := range enough.Each(rules, &errs) {
		errs = append(errs, validateFailureRule(s, &rules[i], path.Index(i), containers)...)
	}
	return errs
}

var actions = []batchv1.PodFailurePolicyAction{
	batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex,
	batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore,
}

func validateFailureRule(s *batchv1.JobSpec, rule *batchv1.PodFailurePolicyRule, path *field.Path,
	containers []string) (errs field.ErrorList) {
	at := path.Child("action")
	if rule.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Invalid(at, rule.Action, "requires the backoffLimitPerIndex to be set"))
	} else {
		errs = append(errs, chosen(at, rule.Action, actions)...)
	}
	if rule.OnExitCodes != nil {
		errs = append(errs, validateExitCodes(rule.OnExitCodes, path.Child("onExitCodes"), containers)...)
	}
	if len(rule.OnPodConditions) > 0 {
		errs = append(errs, validatePatterns(rule.OnPodConditions, path.Child("onPodConditions"))...)
	}
	switch codes, conditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
	case codes && conditions:
		errs = append(errs, field.Invalid(
			path, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported",
		))
	case !codes && !conditions:
		errs = append(errs, field.Invalid(
			path, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required",
		))
	}
	return errs
}

// chosen checks that a value was given and is one of those that there are.
func chosen[T ~string](path *field.Path, value T, values []T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("valid values: %q", values))}
	case !slices.Contains(values, value):
		return field.ErrorList{field.NotSupported(path, value, values)}
	}
	return nil
}

func validatePatterns(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern,
	path *field.Path) (errs field.ErrorList) {
	if len(patterns) > mostPatterns {
		errs = append(errs, field.TooMany(path, len(patterns), mostPatterns))
	}
	for i, p := range enough.Each(patterns, &errs) {
		for _, message := range utilvalidation.IsQualifiedName(string(p.Type)) {
			errs = append(errs, field.Invalid(path.Index(i).Child("type"), string(p.Type), message))
		}
		errs = append(errs, chosen(path.Index(i).Child("status"), p.Status, []corev1.ConditionStatus{
			corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown,
		})...)
	}
	return errs
}

func validateExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, path *field.Path,
	containers []string) field.ErrorList {
	errs := chosen(path.Child("operator"), r.Operator, []batchv1.PodFailurePolicyOnExitCodesOperator{
		batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn,
	})
	if r.ContainerName != nil && !slices.Contains(containers, *r.ContainerName) {
		errs = append(errs, field.Invalid(
			path.Child("containerName"), *r.ContainerName,
			"must be one of the container or initContainer names in the pod template",
		))
	}
	at := path.Child("values")
	switch {
	case len(r.Values) == 0:
		errs = append(errs, field.Invalid(at, r.Values, "at least one value is required"))
	case len(r.Values) > mostExitCodes:
		errs = append(errs, field.TooMany(at, len(r.Values), mostExitCodes))
	}
	seen := make(map[int32]bool, len(r.Values))
	for i, code := range enough.Each(r.Values, &errs) {
		if code == 0 && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			errs = append(errs, field.Invalid(at.Index(i), code, "must not be 0 for the In operator"))
		}
		if seen[code] {
			errs = append(errs, field.Duplicate(at.Index(i), code))
		}
		seen[code] = true
	}
	if !slices.IsSorted(r.Values) {
		errs = append(errs, field.Invalid(at, r.Values, "must be ordered"))
	}
	return errs
}

func validateSuccessPolicy(s *batchv1.JobSpec, path *field.Path) (errs field.ErrorList) {
	rules := s.SuccessPolicy.Rules
	if len(rules) == 0 {
		errs = append(errs, field.Required(path, "at least one rules must be specified when the successPolicy is specified"))
	}
	if len(rules) > mostRules {
		errs = append(errs, field.TooMany(path, len(rules), mostRules))
	}
	for i := range enough.Each(rules, &errs) {
		errs = append(errs, validateSuccessRule(&rules[i], int(ptr.Deref(s.Completions, 0)), path.Index(i))...)
	}
	return errs
}

func validateSuccessRule(rule *batchv1.SuccessPolicyRule, completions int, path *field.Path) (errs field.ErrorList) {
	if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
		errs = append(errs, field.Required(path, "at least one of succeededCount or succeededIndexes must be specified"))
	}
	named := 0
	if text := rule.SucceededIndexes; text != nil {
		at := path.Child("succeededIndexes")
		if len(*text) > longestIndexSet {
			errs = append(errs, field.TooLong(at, "", longestIndexSet))
		}
		set, err := indexset.Parse(*text, completions)
		if err != nil {
			errs = append(errs, field.Invalid(at, *text, "error parsing succeededIndexes: "+err.Error()))
		}
		named = set.Len()
	}
	if rule.SucceededCount == nil {
		return errs
	}
	at, count := path.Child("succeededCount"), int(*rule.SucceededCount)
	errs = append(errs, amount.NonNegative(at, int64(count))...)
	if count > completions {
		errs = append(errs, field.Invalid(
			at, count, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions),
		))
	}
	if rule.SucceededIndexes != nil && count > named {
		errs = append(errs, field.Invalid(
			at, count,
			fmt.Sprintf(
				"must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", named,
			),
		))
	}
	return errs
}
