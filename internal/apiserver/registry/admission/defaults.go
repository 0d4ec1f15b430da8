package admission

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	timeoutSeconds = 10
	httpsPort      = 443
)

// fill sets a missing optional field to its default.
func fill[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

// setWebhookDefaults fills in what a webhook leaves out. A selector that is not
// given selects everything; without one the webhook would see nothing.
func setWebhookDefaults(w webhook) {
	fill(w.failurePolicy, admissionv1.Fail)
	fill(w.matchPolicy, admissionv1.Equivalent)
	fill(w.namespaceSelector, metav1.LabelSelector{})
	fill(w.objectSelector, metav1.LabelSelector{})
	fill(w.timeoutSeconds, int32(timeoutSeconds))
	if w.client.Service != nil {
		fill(&w.client.Service.Port, int32(httpsPort))
	}
	for i := range w.rules {
		fill(&w.rules[i].Scope, admissionv1.AllScopes)
	}
}

func setMatchDefaults(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	fill(&m.MatchPolicy, admissionv1.Equivalent)
	fill(&m.NamespaceSelector, metav1.LabelSelector{})
	fill(&m.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			fill(&rules[i].Scope, admissionv1.AllScopes)
		}
	}
}
