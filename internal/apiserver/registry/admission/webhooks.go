package admission

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// webhook is what both kinds of webhooks have in common.
type webhook struct {
	name              string
	client            *admissionv1.WebhookClientConfig
	rules             []admissionv1.RuleWithOperations
	failurePolicy     **admissionv1.FailurePolicyType
	matchPolicy       **admissionv1.MatchPolicyType
	namespaceSelector **metav1.LabelSelector
	objectSelector    **metav1.LabelSelector
	sideEffects       *admissionv1.SideEffectClass
	timeoutSeconds    **int32
	reviewVersions    []string
	conditions        []admissionv1.MatchCondition
	reinvocation      *admissionv1.ReinvocationPolicyType
}

func ofValidating(w *admissionv1.ValidatingWebhook) webhook {
	return webhook{
		w.Name,
		&w.ClientConfig,
		w.Rules,
		&w.FailurePolicy,
		&w.MatchPolicy,
		&w.NamespaceSelector,
		&w.ObjectSelector,
		w.SideEffects,
		&w.TimeoutSeconds,
		w.AdmissionReviewVersions,
		w.MatchConditions,
		nil,
	}
}

func ofMutating(w *admissionv1.MutatingWebhook) webhook {
	return webhook{
		w.Name,
		&w.ClientConfig,
		w.Rules,
		&w.FailurePolicy,
		&w.MatchPolicy,
		&w.NamespaceSelector,
		&w.ObjectSelector,
		w.SideEffects,
		&w.TimeoutSeconds,
		w.AdmissionReviewVersions,
		w.MatchConditions,
		w.ReinvocationPolicy,
	}
}

// reviewVersions are the versions of AdmissionReview that are spoken.
var reviewVersions = []string{"v1", "v1beta1"}

const maxTimeoutSeconds = 30

func validateWebhooks(list []webhook) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, w := range enough.Each(list, &errs) {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(w, at)...)
		if names[w.name] {
			errs = append(errs, field.Duplicate(at.Child("name"), w.name))
		}
		names[w.name] = true
	}
	return errs
}

func validateWebhook(w webhook, path *field.Path) field.ErrorList {
	errs := utilvalidation.IsFullyQualifiedName(path.Child("name"), w.name)
	for i := range enough.Each(w.rules, &errs) {
		errs = append(errs, validateRule(&w.rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, oneOf(path.Child("failurePolicy"), *w.failurePolicy, admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, oneOf(path.Child("matchPolicy"), *w.matchPolicy, admissionv1.Equivalent, admissionv1.Exact)...)
	if w.sideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, oneOf(
			path.Child("sideEffects"), w.sideEffects, admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun,
		)...)
	}
	errs = append(errs, selector(*w.namespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, selector(*w.objectSelector, path.Child("objectSelector"))...)
	if t := *w.timeoutSeconds; t != nil && (*t > maxTimeoutSeconds || *t < 1) {
		errs = append(errs, field.Invalid(
			path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds",
		))
	}
	errs = append(errs, oneOf(
		path.Child("reinvocationPolicy"), w.reinvocation, admissionv1.IfNeededReinvocationPolicy,
		admissionv1.NeverReinvocationPolicy,
	)...)
	errs = append(errs, validateReviewVersions(w.reviewVersions, path.Child("admissionReviewVersions"))...)
	errs = append(errs, validateClient(w.client, path.Child("clientConfig"))...)
	return append(errs, validateConditions(w.conditions, false, path.Child("matchConditions"))...)
}

func selector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	return enough.LabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// oneOf refuses a value that is not in the list. A missing one is not checked.
func oneOf[T ~string](path *field.Path, value *T, list ...T) field.ErrorList {
	if value == nil || slices.Contains(list, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, list)}
}

func validateReviewVersions(versions []string, path *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(reviewVersions, ", "))}
	}
	var errs field.ErrorList
	spoken, seen := false, sets.New[string]()
	for i, v := range enough.Each(versions, &errs) {
		if seen.Has(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		seen.Insert(v)
		for _, m := range utilvalidation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, m))
		}
		spoken = spoken || slices.Contains(reviewVersions, v)
	}
	if !spoken {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+strings.Join(reviewVersions, ", ")))
	}
	return errs
}

func validateClient(c *admissionv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhookutil.ValidateWebhookURL(path.Child("url"), *c.URL, true)
	}
	s := c.Service
	return webhookutil.ValidateWebhookService(path.Child("service"), s.Namespace, s.Name, s.Path, *s.Port)
}

// validateRule checks which requests a webhook or policy wants to see.
func validateRule(r *admissionv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(path.Child("operations"), ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		errs = append(errs, field.Invalid(
			path.Child("operations"), r.Operations, "if '*' is present, must not specify other operations",
		))
	}
	for i, o := range enough.Each(r.Operations, &errs) {
		errs = append(errs, oneOf(path.Child("operations").Index(i), &o,
			admissionv1.OperationAll, admissionv1.Connect, admissionv1.Create, admissionv1.Delete, admissionv1.Update)...)
	}
	errs = append(errs, wildcardAlone(r.APIGroups, "groups", path.Child("apiGroups"))...)
	errs = append(errs, wildcardAlone(r.APIVersions, "versions", path.Child("apiVersions"))...)
	for i, v := range enough.Each(r.APIVersions, &errs) {
		if v == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
	return append(errs, oneOf(
		path.Child("scope"), r.Scope, admissionv1.AllScopes, admissionv1.ClusterScope, admissionv1.NamespacedScope,
	)...)
}

func wildcardAlone(list []string, what string, path *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		return field.ErrorList{field.Invalid(
			path, list, fmt.Sprintf("if '*' is present, must not specify other API %s", what),
		)}
	}
	return nil
}

// validateResources checks names like pods, pods/status, pods/*, */scale, * and */*.
func validateResources(list []string, path *field.Path) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	for i, r := range enough.Each(list, &errs) {
		switch {
		case r == "":
			errs = append(errs, field.Required(path.Index(i), ""))
		case r == "*/*" && len(list) > 1:
			errs = append(errs, field.Invalid(path, list, "if '*/*' is present, must not specify other resources"))
		case r == "*" && slices.ContainsFunc(list, func(o string) bool { return o != "*" && !strings.Contains(o, "/") }):
			errs = append(errs, field.Invalid(
				path, list, "if '*' is present, must not specify other resources without subresources",
			))
		}
	}
	return errs
}
