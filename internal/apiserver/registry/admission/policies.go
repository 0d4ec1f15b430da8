package admission

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

var specPath = field.NewPath("spec")

func validateValidatingPolicy(s *admissionv1.ValidatingAdmissionPolicySpec) field.ErrorList {
	errs := oneOf(specPath.Child("failurePolicy"), s.FailurePolicy, admissionv1.Fail, admissionv1.Ignore)
	errs = append(errs, validateParamKind(s.ParamKind)...)
	errs = append(errs, validateMatch(s.MatchConstraints, true, specPath.Child("matchConstraints"))...)
	hasParams := s.ParamKind != nil
	errs = append(errs, validateConditions(s.MatchConditions, hasParams, specPath.Child("matchConditions"))...)
	compiler, bad := compileVariables(s.Variables, hasParams)
	errs = append(errs, bad...)
	if len(s.Validations) == 0 && len(s.AuditAnnotations) == 0 {
		const why = "validations or auditAnnotations must contain at least one item"
		return append(
			errs, field.Required(specPath.Child("validations"), why), field.Required(specPath.Child("auditAnnotations"), why),
		)
	}
	for i := range enough.Each(s.Validations, &errs) {
		errs = append(errs, validateValidation(
			compiler, &s.Validations[i], hasParams, specPath.Child("validations").Index(i),
		)...)
	}
	keys := sets.New[string]()
	for i, a := range enough.Each(s.AuditAnnotations, &errs) {
		at := specPath.Child("auditAnnotations").Index(i)
		for _, m := range utilvalidation.IsQualifiedName(a.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), a.Key, m))
		}
		errs = append(errs, compiles(
			compiler, &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}, hasParams,
			at.Child("valueExpression"),
		)...)
		if keys.Has(a.Key) {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		keys.Insert(a.Key)
	}
	return errs
}

func validateValidation(c *policyCompiler, v *admissionv1.Validation, hasParams bool,
	path *field.Path) field.ErrorList {
	errs := compiles(
		c, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}, hasParams,
		path.Child("expression"),
	)
	if v.MessageExpression != "" {
		errs = append(errs, compiles(
			c, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}, hasParams,
			path.Child("messageExpression"),
		)...)
	}
	if v.Message != strings.TrimSpace(v.Message) || strings.Contains(v.Message, "\n") {
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "message must not contain line breaks"))
	}
	return append(errs, oneOf(path.Child("reason"), v.Reason, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
		metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonUnauthorized)...)
}

func validateMutatingPolicy(s *admissionv1.MutatingAdmissionPolicySpec) field.ErrorList {
	errs := oneOf(specPath.Child("failurePolicy"), s.FailurePolicy, admissionv1.Fail, admissionv1.Ignore)
	errs = append(errs, validateParamKind(s.ParamKind)...)
	errs = append(errs, validateMatch(s.MatchConstraints, true, specPath.Child("matchConstraints"))...)
	hasParams := s.ParamKind != nil
	errs = append(errs, validateConditions(s.MatchConditions, hasParams, specPath.Child("matchConditions"))...)
	compiler, bad := compileVariables(s.Variables, hasParams)
	errs = append(errs, bad...)
	errs = append(errs, oneOf(specPath.Child("reinvocationPolicy"), &s.ReinvocationPolicy,
		admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	if len(s.Mutations) == 0 {
		return append(errs, field.Required(specPath.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range enough.Each(s.Mutations, &errs) {
		errs = append(errs, validateMutation(compiler, &s.Mutations[i], hasParams, specPath.Child("mutations").Index(i))...)
	}
	return errs
}

func validateMutation(c *policyCompiler, m *admissionv1.Mutation, hasParams bool, path *field.Path) field.ErrorList {
	apply, jsonPatch := path.Child("applyConfiguration"), path.Child("jsonPatch")
	switch m.PatchType {
	case "":
		return field.ErrorList{field.Required(path.Child("patchType"), "")}
	case admissionv1.PatchTypeApplyConfiguration:
		if m.JSONPatch != nil {
			return field.ErrorList{field.Invalid(
				jsonPatch, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration",
			)}
		}
		if m.ApplyConfiguration == nil {
			return field.ErrorList{field.Required(apply, "must be specified when patchType is ApplyConfiguration")}
		}
		return compilesPatch(
			c, &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}, hasParams,
			apply.Child("expression"),
		)
	case admissionv1.PatchTypeJSONPatch:
		if m.ApplyConfiguration != nil {
			return field.ErrorList{field.Invalid(
				apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch",
			)}
		}
		if m.JSONPatch == nil {
			return field.ErrorList{field.Required(jsonPatch, "must be specified when patchType is JSONPatch")}
		}
		return compilesPatch(
			c, &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}, hasParams, jsonPatch.Child("expression"),
		)
	}
	return oneOf(
		path.Child("patchType"), &m.PatchType, admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch,
	)
}

func validateParamKind(k *admissionv1.ParamKind) field.ErrorList {
	if k == nil {
		return nil
	}
	var errs field.ErrorList
	path := specPath.Child("paramKind")
	if k.APIVersion == "" {
		errs = append(errs, field.Required(path.Child("apiVersion"), ""))
	} else if gv, err := schema.ParseGroupVersion(k.APIVersion); err != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), k.APIVersion, err.Error()))
	} else if gv.Version == "" {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), k.APIVersion, "version must be specified"))
	}
	if k.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	for _, m := range utilvalidation.IsDNS1035Label(strings.ToLower(k.Kind)) {
		errs = append(errs, field.Invalid(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+m))
	}
	return errs
}

// validateMatch checks which requests a policy is about. A policy must say so;
// its binding may narrow it.
func validateMatch(m *admissionv1.MatchResources, mustSay bool, path *field.Path) field.ErrorList {
	if m == nil {
		if mustSay {
			return field.ErrorList{field.Required(path, "")}
		}
		return nil
	}
	errs := oneOf(path.Child("matchPolicy"), m.MatchPolicy, admissionv1.Equivalent, admissionv1.Exact)
	errs = append(errs, selector(m.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, selector(m.ObjectSelector, path.Child("objectSelector"))...)
	if mustSay && len(m.ResourceRules) == 0 {
		errs = append(errs, field.Required(path.Child("resourceRules"), ""))
	}
	for i := range enough.Each(m.ResourceRules, &errs) {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range enough.Each(m.ExcludeResourceRules, &errs) {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateNamedRule(r *admissionv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	errs := validateRule(&r.RuleWithOperations, path)
	if slices.Contains(r.Operations, admissionv1.Connect) {
		errs = append(errs, field.NotSupported(path.Child("operations"), admissionv1.Connect,
			[]admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Create, admissionv1.Delete, admissionv1.Update}))
	}
	seen := sets.New[string]()
	for i, name := range enough.Each(r.ResourceNames, &errs) {
		for _, m := range content.IsPathSegmentName(name) {
			errs = append(errs, field.Invalid(path.Child("resourceNames").Index(i), name, m))
		}
		if seen.Has(name) {
			errs = append(errs, field.Duplicate(path.Child("resourceNames").Index(i), name))
		}
		seen.Insert(name)
	}
	return errs
}

func validateBinding(policy string, params *admissionv1.ParamRef, match *admissionv1.MatchResources) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Required(specPath.Child("policyName"), ""))
	} else {
		for _, m := range utilvalidation.IsDNS1123Subdomain(policy) {
			errs = append(errs, field.Invalid(specPath.Child("policyName"), policy, m))
		}
	}
	errs = append(errs, validateParamRef(params, specPath.Child("paramRef"))...)
	return append(errs, validateMatch(match, false, specPath.Child("matchResources"))...)
}

func validateParamRef(r *admissionv1.ParamRef, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	for _, m := range content.IsPathSegmentName(r.Name) {
		if r.Name != "" {
			errs = append(errs, field.Invalid(path.Child("name"), r.Name, m))
		}
	}
	switch {
	case r.Name != "" && r.Selector != nil:
		errs = append(errs, field.Forbidden(path.Child("name"), "name and selector are mutually exclusive"))
	case r.Name == "" && r.Selector == nil:
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	default:
		errs = append(errs, selector(r.Selector, path.Child("selector"))...)
	}
	if r.ParameterNotFoundAction == nil {
		return append(errs, field.Required(path.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, oneOf(
		path.Child("parameterNotFoundAction"), r.ParameterNotFoundAction, admissionv1.AllowAction, admissionv1.DenyAction,
	)...)
}

func validateActions(actions []admissionv1.ValidationAction, path *field.Path) field.ErrorList {
	if len(actions) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	seen := sets.New[admissionv1.ValidationAction]()
	for i, a := range enough.Each(actions, &errs) {
		errs = append(errs, oneOf(path.Index(i), &a, admissionv1.Audit, admissionv1.Deny, admissionv1.Warn)...)
		if seen.Has(a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
		seen.Insert(a)
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(
			path, actions,
			"must not contain both Deny and Warn (repeating the same validation failure information in the API response and "+
				"headers serves no purpose)",
		))
	}
	return errs
}
