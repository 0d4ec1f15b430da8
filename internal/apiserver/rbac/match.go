package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ruleAllows reports whether one rule grants a request.
func ruleAllows(rule *rbacv1.PolicyRule, request authorizer.Attributes) bool {
	if !hasOrAll(rule.Verbs, request.GetVerb(), rbacv1.VerbAll) {
		return false
	}
	if !request.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool {
			return pathMatches(pattern, request.GetPath())
		})
	}
	return hasOrAll(rule.APIGroups, request.GetAPIGroup(), rbacv1.APIGroupAll) &&
		resourceMatches(rule.Resources, request.GetResource(), request.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, request.GetName()))
}

func hasOrAll(set []string, want, all string) bool {
	return slices.Contains(set, all) || slices.Contains(set, want)
}

// resourceMatches knows "*", "pods", "pods/log" and "*/scale".
func resourceMatches(rules []string, resource, subresource string) bool {
	want := resource
	if subresource != "" {
		want += "/" + subresource
	}
	for _, rule := range rules {
		if rule == rbacv1.ResourceAll || rule == want {
			return true
		}
		if subresource != "" && rule == "*/"+subresource {
			return true
		}
	}
	return false
}

// pathMatches knows exact paths and those that end in "*".
func pathMatches(pattern, path string) bool {
	if pattern == rbacv1.NonResourceAll || pattern == path {
		return true
	}
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return isPrefix && strings.HasPrefix(path, prefix)
}
