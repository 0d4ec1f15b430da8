package reviews

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// access answers the kinds of authorization.k8s.io.
type access struct {
	authorizer authorizer.UnconditionalAuthorizer
	rules      authorizer.RuleResolver
}

func (a *access) subject(ctx context.Context, obj runtime.Object, validate func() error) error {
	review, ok := obj.(*authorizationv1.SubjectAccessReview)
	if !ok {
		return unexpected("SubjectAccessReview", obj)
	}
	errs := append(validateNoMetadata(review.ObjectMeta, false), validateSpec(review.Spec, field.NewPath("spec"))...)
	if err := firstError(invalid("SubjectAccessReview", errs), validate); err != nil {
		return err
	}
	review.Status = a.decide(
		ctx, subjectOf(review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes,
	)
	return nil
}

func (a *access) local(ctx context.Context, obj runtime.Object, validate func() error) error {
	review, ok := obj.(*authorizationv1.LocalSubjectAccessReview)
	if !ok {
		return unexpected("LocalSubjectAccessReview", obj)
	}
	spec := field.NewPath("spec")
	errs := append(validateNoMetadata(review.ObjectMeta, true), validateSpec(review.Spec, spec)...)
	if r := review.Spec.ResourceAttributes; r != nil && r.Namespace != review.Namespace {
		errs = append(errs, field.Invalid(
			spec.Child("resourceAttributes", "namespace"), r.Namespace, "must match metadata.namespace",
		))
	}
	if review.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(
			spec.Child("nonResourceAttributes"), review.Spec.NonResourceAttributes, "disallowed on this kind of request",
		))
	}
	if err := invalid("LocalSubjectAccessReview", errs); err != nil {
		return err
	}
	if namespace := genericapirequest.NamespaceValue(ctx); namespace != review.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("spec.resourceAttributes.namespace must match namespace: %v", namespace))
	}
	if err := validate(); err != nil {
		return err
	}
	review.Status = a.decide(ctx, subjectOf(review.Spec), review.Spec.ResourceAttributes, nil)
	return nil
}

func (a *access) self(ctx context.Context, obj runtime.Object, validate func() error) error {
	review, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return unexpected("SelfSubjectAccessReview", obj)
	}
	errs := validateNoMetadata(review.ObjectMeta, false)
	errs = append(errs, validateAttributes(
		review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes, field.NewPath("spec"),
	)...)
	if err := firstError(invalid("SelfSubjectAccessReview", errs), validate); err != nil {
		return err
	}
	who, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewBadRequest("no user present on request")
	}
	review.Status = a.decide(ctx, who, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return nil
}

func (a *access) selfRules(ctx context.Context, obj runtime.Object, validate func() error) error {
	review, ok := obj.(*authorizationv1.SelfSubjectRulesReview)
	if !ok {
		return unexpected("SelfSubjectRulesReview", obj)
	}
	who, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewBadRequest("no user present on request")
	}
	if review.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	if err := validate(); err != nil {
		return err
	}
	resources, paths, incomplete, err := a.rules.RulesFor(ctx, who, review.Spec.Namespace)
	review.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules:    make([]authorizationv1.ResourceRule, 0, len(resources)),
		NonResourceRules: make([]authorizationv1.NonResourceRule, 0, len(paths)),
		Incomplete:       incomplete,
	}
	for _, r := range resources {
		review.Status.ResourceRules = append(review.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, r := range paths {
		review.Status.NonResourceRules = append(review.Status.NonResourceRules, authorizationv1.NonResourceRule{
			Verbs: r.GetVerbs(), NonResourceURLs: r.GetNonResourceURLs(),
		})
	}
	if err != nil {
		review.Status.EvaluationError = err.Error()
	}
	return nil
}

func (a *access) decide(
	ctx context.Context,
	who user.Info,
	resource *authorizationv1.ResourceAttributes,
	path *authorizationv1.NonResourceAttributes,
) authorizationv1.SubjectAccessReviewStatus {
	decision, reason, err := a.authorizer.Authorize(ctx, attributes(who, resource, path))
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

func subjectOf(spec authorizationv1.SubjectAccessReviewSpec) user.Info {
	who := &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups}
	for key, value := range spec.Extra {
		if who.Extra == nil {
			who.Extra = map[string][]string{}
		}
		who.Extra[key] = value
	}
	return who
}

func validateSpec(spec authorizationv1.SubjectAccessReviewSpec, path *field.Path) field.ErrorList {
	errs := validateAttributes(spec.ResourceAttributes, spec.NonResourceAttributes, path)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(path.Child("user"), spec.User, "at least one of user or group must be specified"))
	}
	return errs
}

func validateAttributes(
	resource *authorizationv1.ResourceAttributes, nonResource *authorizationv1.NonResourceAttributes, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if resource != nil && nonResource != nil {
		errs = append(errs, field.Invalid(
			path.Child("nonResourceAttributes"), nonResource, "cannot be specified in combination with resourceAttributes",
		))
	}
	if resource == nil && nonResource == nil {
		errs = append(errs, field.Invalid(
			path.Child("resourceAttributes"), resource,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified",
		))
	}
	if resource != nil {
		errs = append(errs, validateSelectors(resource, path.Child("resourceAttributes"))...)
	}
	return errs
}

func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: kind}, "", errs)
}

func unexpected(kind string, obj runtime.Object) error {
	return apierrors.NewBadRequest(fmt.Sprintf("not a %s: %T", kind, obj))
}

func firstError(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}
