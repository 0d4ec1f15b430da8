package reviews

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Storage serves one kind of review.
type Storage struct {
	kind       string // such as "SubjectAccessReview"
	namespaced bool
	new        func() runtime.Object
	// answer checks the review and fills in its status. validate runs admission.
	answer func(ctx context.Context, review runtime.Object, validate func() error) error
}

var (
	_ rest.Storage              = &Storage{}
	_ rest.Creater              = &Storage{}
	_ rest.Scoper               = &Storage{}
	_ rest.SingularNameProvider = &Storage{}
)

// New implements rest.Storage.
func (s *Storage) New() runtime.Object { return s.new() }

// Destroy implements rest.Storage.
func (s *Storage) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (s *Storage) NamespaceScoped() bool { return s.namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (s *Storage) GetSingularName() string { return strings.ToLower(s.kind) }

// Create implements rest.Creater: it answers the review.
func (s *Storage) Create(
	ctx context.Context, obj runtime.Object, createValidation rest.ValidateObjectFunc, _ *metav1.CreateOptions,
) (runtime.Object, error) {
	validate := func() error {
		if createValidation == nil {
			return nil
		}
		return createValidation(ctx, obj.DeepCopyObject())
	}
	if err := s.answer(ctx, obj, validate); err != nil {
		return nil, err
	}
	return obj, nil
}

// Authorization gives the storages of authorization.k8s.io/v1 by resource name.
func Authorization(decider authorizer.UnconditionalAuthorizer, rules authorizer.RuleResolver) map[string]rest.Storage {
	a := &access{authorizer: decider, rules: rules}
	return map[string]rest.Storage{
		"subjectaccessreviews": &Storage{
			kind: "SubjectAccessReview", answer: a.subject,
			new: func() runtime.Object { return &authorizationv1.SubjectAccessReview{} },
		},
		"selfsubjectaccessreviews": &Storage{
			kind: "SelfSubjectAccessReview", answer: a.self,
			new: func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} },
		},
		"localsubjectaccessreviews": &Storage{
			kind: "LocalSubjectAccessReview", namespaced: true, answer: a.local,
			new: func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} },
		},
		"selfsubjectrulesreviews": &Storage{
			kind: "SelfSubjectRulesReview", answer: a.selfRules,
			new: func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} },
		},
	}
}

// Authentication gives the storages of authentication.k8s.io/v1 by resource name.
// A TokenReview that names no audience is for apiAudiences.
func Authentication(tokens authenticator.Token, apiAudiences authenticator.Audiences) map[string]rest.Storage {
	i := &identity{tokens: group.NewTokenGroupAdder(tokens, []string{user.AllAuthenticated}), apiAudiences: apiAudiences}
	return map[string]rest.Storage{
		"tokenreviews": &Storage{
			kind: "TokenReview", answer: i.token,
			new: func() runtime.Object { return &authenticationv1.TokenReview{} },
		},
		"selfsubjectreviews": &Storage{
			kind: "SelfSubjectReview", answer: i.self,
			new: func() runtime.Object { return &authenticationv1.SelfSubjectReview{} },
		},
	}
}

// validateNoMetadata refuses metadata on a thing that is not stored. A
// namespaced review may name its namespace.
func validateNoMetadata(meta metav1.ObjectMeta, namespaced bool) field.ErrorList {
	meta.ManagedFields = nil
	text := "must be empty"
	if namespaced {
		meta.Namespace = ""
		text = "must be empty except for namespace"
	}
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, text)}
}
