package loops

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/testenv"
)

func admissionPolicy(name, expression string) *admissionv1.ValidatingAdmissionPolicy {
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"}},
	}}
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
		Validations:      []admissionv1.Validation{{Expression: expression}},
	}}
}

// The status says which expression asks for what there is not, for each generation again.
func statusSaysWhatIsWrongWithExpressions(t *testing.T, env *testenv.Env) {
	policies := env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	observed := func(name string, generation int64) *admissionv1.TypeChecking {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			p, err := policies.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Status.ObservedGeneration == generation && p.Status.TypeChecking != nil {
				return p.Status.TypeChecking
			}
			if time.Now().After(deadline) {
				t.Fatalf("generation %d of %s was never looked at: %+v", generation, name, p.Status)
			}
		}
	}
	for _, p := range []*admissionv1.ValidatingAdmissionPolicy{
		admissionPolicy("good", "object.spec.minReadySeconds < 60"), admissionPolicy("wrong", "object.spec.minReadySeconds < '60' || object.spec.replicas > 1"),
	} {
		if _, err := policies.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := observed("good", 1).ExpressionWarnings; len(got) != 0 {
		t.Errorf("a good policy: %v", got)
	}
	got := observed("wrong", 1).ExpressionWarnings
	if len(got) != 1 || got[0].FieldRef != "spec.validations[0].expression" || !strings.Contains(got[0].Warning, "undefined field 'replicas'") ||
		!strings.Contains(got[0].Warning, "no matching overload for '_<_'") {
		t.Errorf("a wrong policy: %v", got)
	}
	mended := []byte(`{"spec":{"validations":[{"expression":"object.spec.minReadySeconds < 60"}]}}`)
	if _, err := policies.Patch(t.Context(), "wrong", types.MergePatchType, mended, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := observed("wrong", 2).ExpressionWarnings; len(got) != 0 {
		t.Errorf("a policy that was mended: %v", got)
	}
}
