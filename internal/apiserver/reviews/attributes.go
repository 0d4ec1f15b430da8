package reviews

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// attributes turns what a review asks into what an authorizer is asked.
func attributes(
	who user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes,
) authorizer.AttributesRecord {
	if resource == nil {
		return authorizer.AttributesRecord{User: who, Verb: path.Verb, Path: path.Path}
	}
	record := authorizer.AttributesRecord{
		User: who, ResourceRequest: true,
		Verb: resource.Verb, Namespace: resource.Namespace, Name: resource.Name,
		APIGroup: resource.Group, APIVersion: versionOrAll(resource.Version),
		Resource: resource.Resource, Subresource: resource.Subresource,
	}
	if s := resource.FieldSelector; s != nil {
		record.FieldSelectorRequirements, record.FieldSelectorParsingErr = fieldRequirements(s)
	}
	if s := resource.LabelSelector; s != nil {
		record.LabelSelectorRequirements, record.LabelSelectorParsingErr = labelRequirements(s)
	}
	return record
}

func versionOrAll(version string) string {
	if version == "" {
		return "*"
	}
	return version
}

func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (fields.Requirements, error) {
	if s.RawSelector != "" {
		selector, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	var out fields.Requirements
	for _, r := range s.Requirements {
		// Only these two single-valued forms can be said with a field selector; others
		// would narrow the request, and leaving them out asks for more, which is safe.
		switch {
		case r.Operator == metav1.FieldSelectorOpIn && len(r.Values) == 1:
			out = append(out, fields.Requirement{Field: r.Key, Operator: selection.Equals, Value: r.Values[0]})
		case r.Operator == metav1.FieldSelectorOpNotIn && len(r.Values) == 1:
			out = append(out, fields.Requirement{Field: r.Key, Operator: selection.NotEquals, Value: r.Values[0]})
		}
	}
	return out, nil
}

func labelRequirements(s *authorizationv1.LabelSelectorAttributes) (labels.Requirements, error) {
	if s.RawSelector != "" {
		selector, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		requirements, _ := selector.Requirements()
		return requirements, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: s.Requirements})
	if err != nil {
		return nil, err
	}
	requirements, _ := selector.Requirements()
	return requirements, nil
}

func validateSelectors(resource *authorizationv1.ResourceAttributes, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := resource.FieldSelector; s != nil {
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), path.Child("fieldSelector"))...)
	}
	if s := resource.LabelSelector; s != nil {
		errs = append(errs, validateSelector(s.RawSelector, len(s.Requirements), path.Child("labelSelector"))...)
	}
	return errs
}

func validateSelector(raw string, requirements int, path *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(
			path.Child("rawSelector"), raw, "may not specify both rawSelector and requirements",
		)}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(
			path.Child("requirements"), "when "+path.String()+" is specified, requirements or rawSelector is required",
		)}
	}
	return nil
}
