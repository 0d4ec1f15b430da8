package reviews

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

var errAudiences = errors.New("the token is not for any of the audiences asked for")

// identity answers the kinds of authentication.k8s.io.
type identity struct {
	tokens       authenticator.Token
	apiAudiences authenticator.Audiences
}

func (i *identity) token(ctx context.Context, obj runtime.Object, validate func() error) error {
	review, ok := obj.(*authenticationv1.TokenReview)
	if !ok {
		return unexpected("TokenReview", obj)
	}
	if review.Namespace != "" {
		return apierrors.NewBadRequest("namespace is not allowed on this type: " + review.Namespace)
	}
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	if err := validate(); err != nil {
		return err
	}
	review.Status = i.check(ctx, review.Spec)
	return nil
}

func (i *identity) check(ctx context.Context,
	spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	wanted := authenticator.Audiences(spec.Audiences)
	if len(wanted) == 0 {
		wanted = i.apiAudiences
	}
	response, ok, err := i.tokens.AuthenticateToken(authenticator.WithAudiences(ctx, wanted), spec.Token)
	if err == nil && ok && len(spec.Audiences) > 0 && len(wanted.Intersect(response.Audiences)) == 0 {
		ok, err = false, errAudiences
	}
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Token review failed", "reason", err.Error())
		return authenticationv1.TokenReviewStatus{Error: err.Error()}
	}
	if !ok || response == nil || response.User == nil {
		return authenticationv1.TokenReviewStatus{}
	}
	return authenticationv1.TokenReviewStatus{
		Authenticated: true,
		User:          userInfo(response.User),
		Audiences:     response.Audiences,
	}
}

func (i *identity) self(ctx context.Context, obj runtime.Object, validate func() error) error {
	review, ok := obj.(*authenticationv1.SelfSubjectReview)
	if !ok {
		return unexpected("SelfSubjectReview", obj)
	}
	who, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewBadRequest("no user present on request")
	}
	if err := validate(); err != nil {
		return err
	}
	review.Status.UserInfo = userInfo(who)
	return nil
}

func userInfo(who user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, value := range who.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = value
	}
	return info
}
