package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

// Authorizer allows what a rule grants and has no opinion on the rest.
type Authorizer struct {
	resolver *Resolver
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// NewAuthorizer decides by the rules that a resolver finds.
func NewAuthorizer(resolver *Resolver) *Authorizer { return &Authorizer{resolver: resolver} }

// Authorize implements authorizer.Authorizer. Roles that a binding names but that
// do not exist are told in the reason. Until all roles have been read once it
// waits for them: a refusal would be final for the caller, who loses an event or
// gives up, only because the server has just started. An error means that the
// request ended first.
func (a *Authorizer) Authorize(ctx context.Context,
	request authorizer.Attributes) (authorizer.Decision, string, error) {
	if err := a.resolver.waitForSync(ctx); err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("wait for roles and bindings: %w", err)
	}
	var allowedBy source
	var errs []error
	allowed := false
	a.resolver.visit(
		request.GetUser(), request.GetNamespace(),
		func(from source, rule *rbacv1.PolicyRule, err error) bool {
			if err != nil {
				errs = append(errs, err)
				return true
			}
			if ruleAllows(rule, request) {
				allowed, allowedBy = true, from
				return false
			}
			return true
		},
	)
	if allowed {
		return authorizer.DecisionAllow, allowedBy.String(), nil
	}
	klog.FromContext(ctx).V(5).Info("No rule allows the request", "user", request.GetUser().GetName(),
		"verb", request.GetVerb(), "resource", request.GetResource(), "namespace", request.GetNamespace(), "path",
		request.GetPath())
	reason := ""
	if len(errs) > 0 {
		reason = "RBAC: " + utilerrors.NewAggregate(errs).Error()
	}
	return authorizer.DecisionNoOpinion, reason, nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; rules know no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context,
	request authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, request))
}

// EvaluateConditions implements authorizer.Authorizer; rules know no conditions.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision,
	authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver.
func (a *Authorizer) RulesFor(_ context.Context, who user.Info,
	namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, err := a.resolver.Rules(who, namespace)
	var resources []authorizer.ResourceRuleInfo
	var paths []authorizer.NonResourceRuleInfo
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
			})
		}
		if len(rule.NonResourceURLs) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{
				Verbs:           rule.Verbs,
				NonResourceURLs: rule.NonResourceURLs,
			})
		}
	}
	return resources, paths, false, err
}
