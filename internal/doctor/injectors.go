package doctor

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// changesPods reports whether by one of its rules a webhook is asked about pods that are made.
func changesPods(rules []admissionv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		has := func(in []string, one string) bool { return slices.Contains(in, one) || slices.Contains(in, "*") }
		made := slices.Contains(r.Operations, admissionv1.Create) || slices.Contains(r.Operations, admissionv1.OperationAll)
		return made && has(r.APIGroups, "") && (has(r.Resources, "pods") || slices.Contains(r.Resources, "*/*"))
	})
}

// askedAgain reports whether a webhook is asked again where one that came after it has changed what is written.
func askedAgain(p *admissionv1.ReinvocationPolicyType) bool {
	return p != nil && *p == admissionv1.IfNeededReinvocationPolicy
}
