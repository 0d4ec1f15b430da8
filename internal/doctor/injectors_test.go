package doctor

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// TestWhichWebhooksChangePods by their rules, and which are asked again.
func TestWhichWebhooksChangePods(t *testing.T) {
	rule := func(operation admissionv1.OperationType, group, resource string) []admissionv1.RuleWithOperations {
		other := admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule: admissionv1.Rule{APIGroups: []string{""}, Resources: []string{"pods"}}}
		return []admissionv1.RuleWithOperations{other, {Operations: []admissionv1.OperationType{operation},
			Rule: admissionv1.Rule{APIGroups: []string{"batch", group}, Resources: []string{"jobs", resource}}}}
	}
	for name, c := range map[string]struct {
		rules []admissionv1.RuleWithOperations
		want  bool
	}{
		"pods":         {rule(admissionv1.Create, "", "pods"), true},
		"all":          {rule("*", "*", "*/*"), true},
		"all kinds":    {rule(admissionv1.Create, "", "*"), true},
		"changes":      {rule(admissionv1.Update, "", "pods"), false},
		"other groups": {rule(admissionv1.Create, "apps", "pods"), false},
		"parts":        {rule(admissionv1.Create, "", "pods/exec"), false},
		"none":         {nil, false},
	} {
		if got := changesPods(c.rules); got != c.want {
			t.Errorf("%s: it may change new pods: %v, want %v", name, got, c.want)
		}
	}
	again := askedAgain(ptr.To(admissionv1.IfNeededReinvocationPolicy))
	if !again || askedAgain(nil) || askedAgain(ptr.To(admissionv1.NeverReinvocationPolicy)) {
		t.Error("it is not told who is asked again")
	}
}
