// Package rolloutapproval keeps approvals from being got around. A RolloutPolicy in which a
// wave waits for somebody is changed and deleted only by those who may approve, and only they
// take a DaemonSet out of such a policy: by its labels, its update strategy, or another policy
// that takes it over.
package rolloutapproval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/stored"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

type plugin struct {
	*admission.Handler
	authorizer authorizer.UnconditionalAuthorizer
	stored     *Stored
}

var _ admission.ValidationInterface = &plugin{}

// Stored is where policies and DaemonSets are stored. It is filled once the storages are there.
type Stored struct {
	Policies, DaemonSets rest.Lister
}

// New makes the plugin; the authorizer answers who may approve, and have is where the objects are that a write is
// compared with.
func New(decider authorizer.UnconditionalAuthorizer, have *Stored) admission.ValidationInterface {
	return &plugin{
		Handler:    admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		authorizer: decider, stored: have,
	}
}

var (
	policies   = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "rolloutpolicies"}
	daemonSets = appsv1.Resource("daemonsets")
)

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetSubresource() != "" {
		return nil
	}
	switch a.GetResource().GroupResource() {
	case policies:
		return p.policy(ctx, a)
	case daemonSets:
		if a.GetOperation() == admission.Update {
			return p.daemonSet(ctx, a)
		}
	}
	return nil
}

// policy judges a write of a policy.
func (p *plugin) policy(ctx context.Context, a admission.Attributes) error {
	before, err := as[*v1alpha1.RolloutPolicy](a.GetOldObject())
	if err != nil {
		return err
	}
	after, err := as[*v1alpha1.RolloutPolicy](a.GetObject())
	if err != nil {
		return err
	}
	if a.GetOperation() == admission.Delete {
		after = nil
	}
	if before != nil && manual(before) && !same(before, after) {
		return p.need(ctx, a, "a wave of this policy waits for approval", "change or delete it")
	}
	if before != nil && after != nil && alike.Values(before.Spec.Selector, after.Spec.Selector) {
		return nil
	}
	return p.takenOver(ctx, a, before, after)
}

// same reports whether a write leaves a policy as it is. Who adds an owner that does not exist has the garbage
// collector delete it.
func same(before, after *v1alpha1.RolloutPolicy) bool {
	return after != nil && alike.Values(before.Spec, after.Spec) &&
		alike.Values(before.OwnerReferences, after.OwnerReferences) &&
		slices.Equal(before.Finalizers, after.Finalizers)
}

// takenOver judges whether the write of a policy takes a DaemonSet from another one.
func (p *plugin) takenOver(ctx context.Context, a admission.Attributes, before, after *v1alpha1.RolloutPolicy) error {
	have, err := stored.List[*v1alpha1.RolloutPolicy](ctx, p.stored.Policies, a.GetNamespace())
	if err != nil {
		return unknown(a, err)
	}
	if !slices.ContainsFunc(have, manual) {
		return nil
	}
	sets, err := stored.List[*appsv1.DaemonSet](ctx, p.stored.DaemonSets, a.GetNamespace())
	if err != nil {
		return unknown(a, err)
	}
	next := slices.DeleteFunc(slices.Clone(have), func(o *v1alpha1.RolloutPolicy) bool {
		return before != nil && o.Name == before.Name
	})
	if after != nil {
		next = append(next, after)
	}
	for _, ds := range sets {
		if from := left(counts(have, ds), counts(next, ds)); from != nil {
			return p.need(ctx, a, follows(ds, from), "have another policy count for it")
		}
	}
	return nil
}

// daemonSet judges whether an update takes a DaemonSet out of its policy.
func (p *plugin) daemonSet(ctx context.Context, a admission.Attributes) error {
	before, err := as[*appsv1.DaemonSet](a.GetOldObject())
	if err != nil {
		return err
	}
	after, err := as[*appsv1.DaemonSet](a.GetObject())
	if err != nil {
		return err
	}
	if labels.Equals(before.Labels, after.Labels) && onDelete(before) == onDelete(after) {
		return nil
	}
	have, err := stored.List[*v1alpha1.RolloutPolicy](ctx, p.stored.Policies, a.GetNamespace())
	if err != nil {
		return unknown(a, err)
	}
	if from := left(counts(have, before), counts(have, after)); from != nil {
		return p.need(ctx, a, follows(before, from), "take it out of that policy")
	}
	return nil
}

// left returns the policy in which a wave waits that a DaemonSet follows before a write, if it follows another one or
// none after it; nil otherwise.
func left(before, after *v1alpha1.RolloutPolicy) *v1alpha1.RolloutPolicy {
	if before == nil || !manual(before) || after != nil && after.Name == before.Name {
		return nil
	}
	return before
}

// counts is the policy that a DaemonSet follows; nil for none, as with OnDelete.
func counts(all []*v1alpha1.RolloutPolicy, ds *appsv1.DaemonSet) *v1alpha1.RolloutPolicy {
	if onDelete(ds) {
		return nil
	}
	return rolloutpolicy.Choose(all, ds.Namespace, ds.Labels)
}

func manual(p *v1alpha1.RolloutPolicy) bool {
	return slices.ContainsFunc(p.Spec.Waves, func(w v1alpha1.Wave) bool { return w.Approval == v1alpha1.ApprovalManual })
}

func onDelete(ds *appsv1.DaemonSet) bool {
	return ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
}

func follows(ds *appsv1.DaemonSet, p *v1alpha1.RolloutPolicy) string {
	return fmt.Sprintf("DaemonSet %s follows policy %s, of which a wave waits for approval", ds.Name, p.Name)
}

// as returns an object as the type that it is, nil if there is none.
func as[T runtime.Object](o runtime.Object) (none T, err error) {
	if o == nil {
		return none, nil
	}
	typed, ok := o.(T)
	if !ok {
		return none, apierrors.NewBadRequest(fmt.Sprintf("expected a %T but got a %T", none, o))
	}
	return typed, nil
}

// unknown refuses a write that might get around an approval.
func unknown(a admission.Attributes, err error) error {
	return apierrors.NewInternalError(fmt.Errorf("find out whether %s %s gets around an approval: %w",
		a.GetResource().Resource, a.GetName(), err))
}

// need asks whether the user may write the rollouts of the namespace, as who approves does.
func (p *plugin) need(ctx context.Context, a admission.Attributes, why, what string) error {
	verb := "update"
	if a.GetOperation() == admission.Delete {
		verb = "delete"
	}
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, Namespace: a.GetNamespace(), ResourceRequest: true,
		APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version, Resource: "daemonsetrollouts",
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	text := fmt.Sprintf("%s, so you need the right to %s daemonsetrollouts to %s", why, verb, what)
	if err != nil {
		return admission.NewForbidden(a, fmt.Errorf("%s: %w", text, err))
	}
	return admission.NewForbidden(a, errors.New(text))
}
