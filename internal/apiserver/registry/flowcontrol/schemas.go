package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
)

// everything matches all verbs, groups, resources, namespaces, names or paths.
const everything = "*"

var (
	verbs = []string{
		"connect", "create", "delete", "deletecollection", "get", "head", "list", "options", "patch", "post", "proxy", "put",
		"update", "watch",
	}
	kinds = []flowcontrolv1.SubjectKind{
		flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser,
	}
	ways = []flowcontrolv1.FlowDistinguisherMethodType{
		flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType,
	}
)

// ValidateSchema checks a schema, metadata aside.
func ValidateSchema(f *flowcontrolv1.FlowSchema) field.ErrorList {
	errs := validateSchemaSpec(f.Name, &f.Spec)
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if fixed.Name == f.Name && !alike.Values(f.Spec, fixed.Spec) {
			errs = append(errs, field.Invalid(specPath, f.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name)))
		}
	}
	return append(errs, validateConditions(f.Status.Conditions)...)
}

func validateSchemaSpec(name string, spec *flowcontrolv1.FlowSchemaSpec) field.ErrorList {
	var errs field.ErrorList
	precedence, most := specPath.Child("matchingPrecedence"), flowcontrolv1.FlowSchemaMaxMatchingPrecedence
	if spec.MatchingPrecedence <= 0 {
		errs = append(errs, field.Invalid(precedence, spec.MatchingPrecedence, "must be a positive value"))
	}
	if spec.MatchingPrecedence > most {
		errs = append(errs, field.Invalid(
			precedence, spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", most),
		))
	}
	if spec.MatchingPrecedence == 1 && name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(
			precedence, spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1",
		))
	}
	if d := spec.DistinguisherMethod; d != nil && !slices.Contains(ways, d.Type) {
		errs = append(errs, field.NotSupported(specPath.Child("distinguisherMethod", "type"), d.Type, ways))
	}
	level := specPath.Child("priorityLevelConfiguration", "name")
	if spec.PriorityLevelConfiguration.Name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, badName(level, spec.PriorityLevelConfiguration.Name, validation.NameIsDNSSubdomain)...)
	}
	for i := range enough.Each(spec.Rules, &errs) {
		errs = append(errs, validateRule(&spec.Rules[i], specPath.Child("rules").Index(i))...)
	}
	return errs
}

func badName(path *field.Path, name string, check validation.ValidateNameFunc) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range check(name, false) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func validateRule(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range enough.Each(r.Subjects, &errs) {
		errs = append(errs, validateSubject(&r.Subjects[i], path.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules) == 0 && len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range enough.Each(r.ResourceRules, &errs) {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range enough.Each(r.NonResourceRules, &errs) {
		errs = append(errs, validatePathRule(&r.NonResourceRules[i], path.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

func validateSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	if !slices.Contains(kinds, s.Kind) {
		return field.ErrorList{field.NotSupported(path.Child("kind"), s.Kind, kinds)}
	}
	var errs field.ErrorList
	for _, c := range []struct {
		kind  flowcontrolv1.SubjectKind
		field string
		set   bool
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil},
	} {
		at := path.Child(c.field)
		switch {
		case c.kind != s.Kind && c.set:
			errs = append(errs, field.Forbidden(
				at, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", c.field, c.kind),
			))
		case c.kind == s.Kind && !c.set:
			errs = append(errs, field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", c.field, c.kind)))
		}
	}
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil && s.User.Name == "":
		errs = append(errs, field.Required(path.Child("user", "name"), ""))
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil && s.Group.Name == "":
		errs = append(errs, field.Required(path.Child("group", "name"), ""))
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		errs = append(errs, validateAccount(s.ServiceAccount, path.Child("serviceAccount"))...)
	}
	return errs
}

func validateAccount(a *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch a.Name {
	case "":
		errs = append(errs, field.Required(path.Child("name"), ""))
	case everything:
	default:
		errs = append(errs, badName(path.Child("name"), a.Name, validation.ValidateServiceAccountName)...)
	}
	if a.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, badName(path.Child("namespace"), a.Namespace, validation.ValidateNamespaceName)...)
}

// list checks a list that must not be empty, and in which "*" stands alone.
func list(path *field.Path, values []string, empty, others string) field.ErrorList {
	switch {
	case len(values) == 0:
		return field.ErrorList{field.Required(path, empty)}
	case len(values) > 1 && slices.Contains(values, everything):
		return field.ErrorList{field.Invalid(path, values, "if '*' is present, must not specify other "+others)}
	}
	return nil
}

func validateVerbs(path *field.Path, values []string) field.ErrorList {
	errs := list(path, values, "verbs must contain at least one value", "verbs")
	if len(errs) > 0 || slices.Contains(values, everything) {
		return errs
	}
	for _, v := range values {
		if !slices.Contains(verbs, v) {
			return field.ErrorList{field.NotSupported(path, values, verbs)}
		}
	}
	return nil
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(path.Child("verbs"), r.Verbs)
	errs = append(errs, list(
		path.Child("apiGroups"), r.APIGroups, "resource rules must supply at least one api group", "api groups",
	)...)
	errs = append(errs, list(
		path.Child("resources"), r.Resources, "resource rules must supply at least one resource", "resources",
	)...)
	namespaces := path.Child("namespaces")
	if len(r.Namespaces) == 0 {
		if !r.ClusterScope {
			errs = append(errs, field.Required(
				namespaces, "resource rules that are not cluster scoped must supply at least one namespace",
			))
		}
		return errs
	}
	errs = append(errs, list(namespaces, r.Namespaces, "", "namespaces")...)
	for i, n := range enough.Each(r.Namespaces, &errs) {
		if n != everything {
			errs = append(errs, badName(namespaces.Index(i), n, validation.ValidateNamespaceName)...)
		}
	}
	return errs
}

func validatePathRule(r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(path.Child("verbs"), r.Verbs)
	at := path.Child("nonResourceURLs")
	errs = append(errs, list(
		at, r.NonResourceURLs, "nonResourceURLs must contain at least one value", "non-resource URLs",
	)...)
	for i, p := range enough.Each(r.NonResourceURLs, &errs) {
		if problem := badPath(p); p != everything && problem != "" {
			errs = append(errs, field.Invalid(at.Index(i), p, problem))
		}
	}
	return errs
}

// badPath says what is wrong with a path outside the resources, or nothing.
func badPath(p string) string {
	switch {
	case p == "":
		return "must not be empty"
	case p == "/":
		return ""
	case !strings.HasPrefix(p, "/"):
		return "must start with slash"
	case strings.Contains(p, " "):
		return "must not contain white-space"
	case strings.Contains(p, "//"):
		return "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(p, "/*"), everything): // One at the end, after a slash.
		return "wildcard can only do suffix matching"
	}
	return ""
}
