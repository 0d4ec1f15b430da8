// Package servertokens keeps who may write Secrets from making a token with which a
// server joins: that gives all keys of the cluster. It needs the right to join as well.
package servertokens

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/storage/members"
)

type plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = &plugin{}

// New makes the plugin; the authorizer answers who may have servers join.
func New(decider authorizer.UnconditionalAuthorizer) admission.ValidationInterface {
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), authorizer: decider}
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != corev1.Resource("secrets") || a.GetSubresource() != "" ||
		a.GetNamespace() != metav1.NamespaceSystem {
		return nil
	}
	secret, ok := a.GetObject().(*corev1.Secret)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a Secret but got a %T", a.GetObject()))
	}
	if !authn.IsForServers(secret) {
		return nil
	}
	// Who puts another secret into a token that there is has made one.
	if old, ok := a.GetOldObject().(*corev1.Secret); ok && old.Type == secret.Type && alike.Values(old.Data, secret.Data) {
		return nil
	}
	if authn.IsReadable(secret) {
		return admission.NewForbidden(a, errors.New("the Secret of a token of the group "+members.Group+
			" must not hold the token itself; make it with \"everynode token create --server\""))
	}
	decision, _, err := p.authorizer.Authorize(ctx,
		authorizer.AttributesRecord{User: a.GetUserInfo(), Verb: "post", Path: members.Path})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	const text = "a token of the group " + members.Group +
		" gives all keys of the cluster, so you need the right to post to " + members.Path + " to make one"
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("%s: %w", text, err))
	}
	return admission.NewForbidden(a, errors.New(text))
}
