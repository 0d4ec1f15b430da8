package rbac

import (
	"errors"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// maxSteps bounds how often one right is compared with one rule to check one role: about half a second.
const maxSteps = 5_000_000

// maxMissing is how many missing rights are named. One is enough to refuse.
const maxMissing = 1000

var errTooManyRights = errors.New(
	"the role has too many combinations of API groups, resources, verbs and names to be compared with what the user " +
		"holds; " +
		"write several roles with fewer of them",
)

// right is one of the combinations that a rule grants.
type right struct {
	group, resource, name, verb string
	// url is that of a right to a path. Such a right has isURL, and of the others the verb alone.
	url   string
	isURL bool
}

// uncovered returns the rights of rules that none of held grants, up to maxMissing of them. Which
// grants which is what component-helpers' validation.Covers says; that one makes a rule of each
// combination and compares it with every rule, however many these are.
func uncovered(held, rules []rbacv1.PolicyRule) (missing []right, err error) {
	grants := make([]grant, len(held))
	for i := range held {
		grants[i] = newGrant(&held[i])
	}
	steps := 0
	for i := range rules {
		rule := &rules[i]
		if slices.ContainsFunc(grants, func(g grant) bool { return g.all(rule) }) {
			continue
		}
		for r := range rights(rule) {
			if steps += max(1, len(grants)); steps > maxSteps {
				return nil, errTooManyRights
			}
			if !slices.ContainsFunc(grants, func(g grant) bool { return g.one(r) }) {
				missing = append(missing, r)
			}
			if len(missing) == maxMissing {
				return missing, nil
			}
		}
	}
	return missing, nil
}

// rights gives each combination that a rule grants.
func rights(rule *rbacv1.PolicyRule) func(yield func(right) bool) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	return func(yield func(right) bool) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						if !yield(right{group: group, resource: resource, name: name, verb: verb}) {
							return
						}
					}
				}
			}
		}
		for _, url := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				if !yield(right{url: url, isURL: true, verb: verb}) {
					return
				}
			}
		}
	}
}

// grant is a rule that is looked into often.
type grant struct {
	groups, resources, verbs, names, urls sets.Set[string]
	// prefixes are the paths that end in a star, without it.
	prefixes []string
}

func newGrant(rule *rbacv1.PolicyRule) grant {
	g := grant{groups: sets.New(rule.APIGroups...), resources: sets.New(rule.Resources...), verbs: sets.New(rule.Verbs...),
		names: sets.New(rule.ResourceNames...), urls: sets.New(rule.NonResourceURLs...)}
	for _, url := range rule.NonResourceURLs {
		if strings.HasSuffix(url, "*") {
			g.prefixes = append(g.prefixes, strings.TrimRight(url, "*"))
		}
	}
	return g
}

// one reports whether the rule grants a right.
func (g *grant) one(r right) bool {
	if !g.verb(r.verb) || !g.name(r.name) {
		return false
	}
	if r.isURL {
		return g.url(r.url)
	}
	return g.group(r.group) && g.resource(r.resource)
}

// all reports whether the rule grants all rights of another.
func (g *grant) all(rule *rbacv1.PolicyRule) bool {
	each := func(values []string, granted func(string) bool) bool {
		return !slices.ContainsFunc(values, func(v string) bool { return !granted(v) })
	}
	return (len(rule.ResourceNames) > 0 || len(g.names) == 0) && each(rule.APIGroups, g.group) &&
		each(rule.Verbs, g.verb) &&
		each(rule.ResourceNames, g.name) && each(rule.Resources, g.resource) && each(rule.NonResourceURLs, g.url)
}

func (g *grant) verb(verb string) bool { return g.verbs.Has(verb) || g.verbs.Has(rbacv1.VerbAll) }
func (g *grant) group(group string) bool {
	return g.groups.Has(group) || g.groups.Has(rbacv1.APIGroupAll)
}

// name takes "" for objects of any name.
func (g *grant) name(name string) bool {
	return len(g.names) == 0 || name != "" && g.names.Has(name)
}

func (g *grant) resource(resource string) bool {
	if g.resources.Has(resource) || g.resources.Has(rbacv1.ResourceAll) {
		return true
	}
	_, subresource, ok := strings.Cut(resource, "/")
	return ok && g.resources.Has("*/"+subresource)
}

func (g *grant) url(url string) bool {
	return g.urls.Has(url) || slices.ContainsFunc(g.prefixes, func(prefix string) bool {
		return strings.HasPrefix(url, prefix)
	})
}
