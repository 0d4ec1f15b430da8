package reviews

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// recorder allows the verb "get", denies "delete", and remembers what it was asked.
type recorder struct {
	asked authorizer.Attributes
}

func (r *recorder) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.asked = a
	switch a.GetVerb() {
	case "get":
		return authorizer.DecisionAllow, "may get", nil
	case "delete":
		return authorizer.DecisionDeny, "may not delete", nil
	case "broken":
		return authorizer.DecisionNoOpinion, "", errors.New("boom")
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func (r *recorder) RulesFor(_ context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	return []authorizer.ResourceRuleInfo{&authorizer.DefaultResourceRuleInfo{Verbs: []string{"get"}, Resources: []string{namespace}, ResourceNames: []string{who.GetName()}}},
		[]authorizer.NonResourceRuleInfo{&authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}, true, errors.New("half")
}

func create(t *testing.T, storage rest.Storage, ctx context.Context, obj runtime.Object) error {
	t.Helper()
	_, err := storage.(rest.Creater).Create(ctx, obj, nil, &metav1.CreateOptions{})
	return err
}

func as(ctx context.Context, who string) context.Context {
	return genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: who, Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}})
}

func TestSubjectAccessReview(t *testing.T) {
	r := &recorder{}
	storage := Authorization(r, r)["subjectaccessreviews"]
	pods := &authorizationv1.ResourceAttributes{Verb: "get", Group: "g", Resource: "pods", Subresource: "log", Namespace: "ns", Name: "p"}
	path := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/healthz"}
	with := func(verb string) *authorizationv1.ResourceAttributes {
		a := *pods
		a.Verb = verb
		return &a
	}
	cases := []struct {
		name   string
		review authorizationv1.SubjectAccessReview
		status authorizationv1.SubjectAccessReviewStatus
		says   string
	}{
		{"allowed", sar("jane", pods, nil), authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "may get"}, ""},
		{"path", sar("jane", nil, path), authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "may get"}, ""},
		{"denied", sar("jane", with("delete"), nil), authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "may not delete"}, ""},
		{"no opinion", sar("jane", with("list"), nil), authorizationv1.SubjectAccessReviewStatus{}, ""},
		{"broken", sar("jane", with("broken"), nil), authorizationv1.SubjectAccessReviewStatus{EvaluationError: "boom"}, ""},
		{"both", sar("jane", pods, path), authorizationv1.SubjectAccessReviewStatus{}, "cannot be specified in combination with resourceAttributes"},
		{"neither", sar("jane", nil, nil), authorizationv1.SubjectAccessReviewStatus{}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"},
		{"nobody", sar("", pods, nil), authorizationv1.SubjectAccessReviewStatus{}, "at least one of user or group must be specified"},
		{"a name", func() authorizationv1.SubjectAccessReview {
			review := sar("jane", pods, nil)
			review.Name = "x"
			return review
		}(), authorizationv1.SubjectAccessReviewStatus{}, "must be empty"},
		{"two selectors", func() authorizationv1.SubjectAccessReview {
			a := *pods
			a.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: "a=b", Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}}
			return sar("jane", &a, nil)
		}(), authorizationv1.SubjectAccessReviewStatus{}, "may not specify both"},
	}
	for _, c := range cases {
		err := create(t, storage, t.Context(), &c.review)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", c.name, err, c.says)
			}
			continue
		}
		if err != nil || c.review.Status != c.status {
			t.Errorf("%s: %+v, %v; want %+v", c.name, c.review.Status, err, c.status)
		}
	}
	review := sar("jane", pods, nil)
	review.Spec.Groups, review.Spec.Extra = []string{"devs"}, map[string]authorizationv1.ExtraValue{"k": {"v"}}
	if err := create(t, storage, t.Context(), &review); err != nil {
		t.Fatal(err)
	}
	a := r.asked
	if a.GetUser().GetName() != "jane" || a.GetUser().GetGroups()[0] != "devs" || a.GetUser().GetExtra()["k"][0] != "v" ||
		a.GetAPIGroup() != "g" || a.GetAPIVersion() != "*" || a.GetResource() != "pods" || a.GetSubresource() != "log" ||
		a.GetNamespace() != "ns" || a.GetName() != "p" || !a.IsResourceRequest() {
		t.Errorf("asked %+v", a)
	}
}

func sar(who string, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReview {
	return authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: who, ResourceAttributes: resource, NonResourceAttributes: path}}
}

func TestSelfReviewsAskAboutTheCaller(t *testing.T) {
	r := &recorder{}
	storages := Authorization(r, r)
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}
	if err := create(t, storages["selfsubjectaccessreviews"], as(t.Context(), "jane"), review); err != nil || !review.Status.Allowed || r.asked.GetUser().GetName() != "jane" {
		t.Errorf("%+v, %v", review.Status, err)
	}
	if err := create(t, storages["selfsubjectaccessreviews"], t.Context(), review); err == nil {
		t.Error("answered without a caller")
	}
	rules := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "ns"}}
	if err := create(t, storages["selfsubjectrulesreviews"], as(t.Context(), "jane"), rules); err != nil {
		t.Fatal(err)
	}
	s := rules.Status
	if len(s.ResourceRules) != 1 || s.ResourceRules[0].Resources[0] != "ns" || s.ResourceRules[0].ResourceNames[0] != "jane" ||
		len(s.NonResourceRules) != 1 || !s.Incomplete || s.EvaluationError != "half" {
		t.Errorf("status %+v", s)
	}
	if err := create(t, storages["selfsubjectrulesreviews"], as(t.Context(), "jane"), &authorizationv1.SelfSubjectRulesReview{}); err == nil {
		t.Error("answered without a namespace")
	}
}

func TestLocalReviewStaysInItsNamespace(t *testing.T) {
	r := &recorder{}
	storage := Authorization(r, r)["localsubjectaccessreviews"]
	cases := []struct {
		name, in, meta, resource string
		says                     string
	}{
		{"good", "ns", "ns", "ns", ""},
		{"another namespace asked for", "ns", "ns", "other", "must match metadata.namespace"},
		{"another namespace in the body", "ns", "other", "other", "must match namespace: ns"},
	}
	for _, c := range cases {
		review := &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.meta},
			Spec:       authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Namespace: c.resource}},
		}
		err := create(t, storage, genericapirequest.WithNamespace(t.Context(), c.in), review)
		if (c.says == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
	paths := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"},
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x"}}}
	if err := create(t, storage, genericapirequest.WithNamespace(t.Context(), "ns"), paths); err == nil || !strings.Contains(err.Error(), "disallowed") {
		t.Errorf("a path in a local review: %v", err)
	}
}

type tokens struct{}

func (tokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, _ := authenticator.AudiencesFrom(ctx)
	switch token {
	case "good":
		return &authenticator.Response{User: &user.DefaultInfo{Name: "jane", UID: "1", Groups: []string{"g"}}, Audiences: audiences.Intersect(authenticator.Audiences{"api", "vault"})}, true, nil
	case "deaf":
		return &authenticator.Response{User: &user.DefaultInfo{Name: "jane"}}, true, nil
	case "bad":
		return nil, false, errors.New("expired")
	}
	return nil, false, nil
}

func TestTokenReview(t *testing.T) {
	storage := Authentication(tokens{}, authenticator.Audiences{"api"})["tokenreviews"]
	cases := []struct {
		token     string
		audiences []string
		ok        bool
		got, err  string
	}{
		{"good", nil, true, "api", ""},
		{"good", []string{"vault"}, true, "vault", ""},
		{"deaf", []string{"vault"}, false, "", errAudiences.Error()},
		{"bad", nil, false, "", "expired"},
		{"unknown", nil, false, "", ""},
	}
	for _, c := range cases {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: c.token, Audiences: c.audiences}}
		err := create(t, storage, t.Context(), review)
		s := review.Status
		if err != nil || s.Authenticated != c.ok || s.Error != c.err || strings.Join(s.Audiences, ",") != c.got || (s.User.Username == "jane") != c.ok || slices.Contains(s.User.Groups, "system:authenticated") != c.ok {
			t.Errorf("%s for %v: %+v, %v", c.token, c.audiences, s, err)
		}
	}
	if err := create(t, storage, t.Context(), &authenticationv1.TokenReview{}); err == nil || !strings.Contains(err.Error(), "token is required") {
		t.Errorf("without a token: %v", err)
	}
}

func TestSelfSubjectReview(t *testing.T) {
	storage := Authentication(tokens{}, nil)["selfsubjectreviews"]
	review := &authenticationv1.SelfSubjectReview{}
	if err := create(t, storage, as(t.Context(), "jane"), review); err != nil || review.Status.UserInfo.Username != "jane" || review.Status.UserInfo.Extra["k"][0] != "v" {
		t.Errorf("%+v, %v", review.Status, err)
	}
}

func TestAdmissionIsAskedFirst(t *testing.T) {
	r := &recorder{}
	review := sar("jane", &authorizationv1.ResourceAttributes{Verb: "get"}, nil)
	refuse := func(context.Context, runtime.Object) error { return errors.New("no reviews today") }
	_, err := Authorization(r, r)["subjectaccessreviews"].(rest.Creater).Create(t.Context(), &review, refuse, nil)
	if err == nil || r.asked != nil {
		t.Errorf("error %v, asked %v", err, r.asked)
	}
}

func TestEveryKindIsWhatItSays(t *testing.T) {
	r := &recorder{}
	all := Authorization(r, r)
	for name, storage := range Authentication(tokens{}, nil) {
		all[name] = storage
	}
	for name, storage := range all {
		s := storage.(*Storage)
		if s.GetSingularName()+"s" != name || s.NamespaceScoped() != (name == "localsubjectaccessreviews") {
			t.Errorf("%s: singular %s, namespaced %v", name, s.GetSingularName(), s.NamespaceScoped())
		}
		if err := create(t, storage, as(t.Context(), "jane"), &metav1.Status{}); err == nil || !strings.Contains(err.Error(), "not a "+s.kind) {
			t.Errorf("%s took another kind: %v", name, err)
		}
	}
}
