// Package onbindings says whether webhooks or policies that somebody configured are about bindings of pods. One who is
// asked about a binding may look for the pod, or keep it from its node.
package onbindings

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// New returns whether there are some now. As long as that is not known, there are.
func New(kinds v1.Interface) func() bool { return Some(kinds, Is) }

// Some returns whether there are webhooks or policies of which something holds. As long as that is not known, there
// are.
func Some(kinds v1.Interface, holds func(configured any) bool) func() bool {
	all := []cache.SharedIndexInformer{
		kinds.MutatingWebhookConfigurations().Informer(), kinds.ValidatingWebhookConfigurations().Informer(),
		kinds.MutatingAdmissionPolicies().Informer(), kinds.ValidatingAdmissionPolicies().Informer(),
	}
	return func() bool {
		return slices.ContainsFunc(all, func(informer cache.SharedIndexInformer) bool {
			return !informer.HasSynced() || slices.ContainsFunc(informer.GetStore().List(), holds)
		})
	}
}

// Is says whether a configuration of webhooks, or a policy, may be about the creation of pods/binding. Selectors,
// conditions and exceptions are not looked at, nor whether a policy is bound to anything.
func Is(configured any) bool {
	switch c := configured.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		return slices.ContainsFunc(c.Webhooks, func(w admissionv1.MutatingWebhook) bool { return rules(w.Rules) })
	case *admissionv1.ValidatingWebhookConfiguration:
		return slices.ContainsFunc(c.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return rules(w.Rules) })
	case *admissionv1.MutatingAdmissionPolicy:
		return policy(c.Spec.MatchConstraints)
	case *admissionv1.ValidatingAdmissionPolicy:
		return policy(c.Spec.MatchConstraints)
	}
	return true
}

func rules(of []admissionv1.RuleWithOperations) bool {
	return slices.ContainsFunc(of, func(r admissionv1.RuleWithOperations) bool { return rule(&r) })
}

func policy(of *admissionv1.MatchResources) bool {
	return of == nil || slices.ContainsFunc(of.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return rule(&r.RuleWithOperations)
	})
}

// The names by which a rule means bindings of pods.
var (
	operations = []admissionv1.OperationType{admissionv1.OperationAll, admissionv1.Create}
	resources  = []string{"pods/binding", "pods/*", "*/binding", "*/*"}
)

func rule(r *admissionv1.RuleWithOperations) bool {
	namespaced := r.Scope == nil || *r.Scope != admissionv1.ClusterScope
	return namespaced && names(r.Operations, operations...) && names(r.APIGroups, "", "*") &&
		names(r.APIVersions, "v1", "*") && names(r.Resources, resources...)
}

func names[T comparable](list []T, any ...T) bool {
	return slices.ContainsFunc(list, func(item T) bool { return slices.Contains(any, item) })
}
