// Package rolloutapproval keeps approvals from being taken out of a policy: a
// RolloutPolicy in which a wave waits for somebody is changed and deleted only by
// those who may approve. Otherwise who may write policies could do without.
package rolloutapproval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/api/v1alpha1"
)

type plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
}

var _ admission.ValidationInterface = &plugin{}

// New makes the plugin; the authorizer answers who may approve.
func New(decider authorizer.UnconditionalAuthorizer) admission.ValidationInterface {
	return &plugin{Handler: admission.NewHandler(admission.Update, admission.Delete), authorizer: decider}
}

var policies = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "rolloutpolicies"}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != policies || a.GetSubresource() != "" {
		return nil
	}
	old, ok := a.GetOldObject().(*v1alpha1.RolloutPolicy)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a RolloutPolicy but got a %T", a.GetOldObject()))
	}
	manual := func(w v1alpha1.Wave) bool { return w.Approval == v1alpha1.ApprovalManual }
	if !slices.ContainsFunc(old.Spec.Waves, manual) {
		return nil
	}
	if a.GetOperation() == admission.Delete {
		return p.need(ctx, a, "delete")
	}
	changed, ok := a.GetObject().(*v1alpha1.RolloutPolicy)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a RolloutPolicy but got a %T", a.GetObject()))
	}
	if equality.Semantic.DeepEqual(old.Spec, changed.Spec) {
		return nil
	}
	return p.need(ctx, a, "update")
}

// need asks whether the user may do the same with the rollouts of the namespace.
func (p *plugin) need(ctx context.Context, a admission.Attributes, verb string) error {
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, Namespace: a.GetNamespace(), ResourceRequest: true,
		APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version, Resource: "daemonsetrollouts",
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	text := fmt.Sprintf("a wave of this policy waits for approval, so it takes the right to %s daemonsetrollouts to %s it", verb, verb)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("%s: %w", text, err))
	}
	return admission.NewForbidden(a, errors.New(text))
}
