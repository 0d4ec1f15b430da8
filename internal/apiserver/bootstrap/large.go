package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
)

// maxCompared is how many single rights of a stored role are compared with those that it should have. The library
// writes each of them out, and a rule of a few kilobytes can stand for millions.
const maxCompared = 100_000

// sparing sets the rules of a stored role aside that are too many rights to compare, and puts them back when the role
// is written. What they grant counts as missing meanwhile, so the role gets that by rules of its own.
type sparing struct {
	reconciliation.RuleOwnerModifier
	aside []rbacv1.PolicyRule
}

// Get implements reconciliation.RuleOwnerModifier.
func (s *sparing) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	stored, err := s.RuleOwnerModifier.Get(namespace, name)
	if err != nil {
		return nil, err // as the library reads it
	}
	s.aside = nil
	var kept []rbacv1.PolicyRule
	left := maxCompared
	for _, rule := range stored.GetRules() {
		n := rightsOf(&rule, left)
		if n > left {
			s.aside = append(s.aside, rule)
			continue
		}
		left -= n
		kept = append(kept, rule)
	}
	if len(s.aside) > 0 {
		stored = stored.DeepCopyRuleOwner()
		stored.SetRules(kept)
	}
	return stored, nil
}

// Update implements reconciliation.RuleOwnerModifier.
func (s *sparing) Update(role reconciliation.RuleOwner) (reconciliation.RuleOwner, error) {
	if len(s.aside) > 0 {
		role = role.DeepCopyRuleOwner()
		role.SetRules(append(role.GetRules(), s.aside...))
	}
	return s.RuleOwnerModifier.Update(role)
}

// rightsOf counts the single rights of a rule; more than enough may be any number above it.
func rightsOf(rule *rbacv1.PolicyRule, enough int) int {
	n := 1
	for _, of := range []int{
		len(rule.APIGroups), len(rule.Resources), len(rule.Verbs), max(1, len(rule.ResourceNames)),
	} {
		n *= of
		if n > enough {
			return n
		}
	}
	return n + len(rule.NonResourceURLs)*len(rule.Verbs)
}
