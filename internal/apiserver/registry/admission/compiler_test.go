package admission

import (
	"runtime"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A configuration of 3 MB has tens of thousands of webhooks, each with good conditions of its own. What knows the
// language takes a megabyte to make, and is made once.
func TestWebhooksShareACompiler(t *testing.T) {
	conditions := []admissionv1.MatchCondition{{Name: "a.example", Expression: "request.kind.kind != 'Lease'"}}
	check := func() {
		if errs := validateConditions(conditions, false, field.NewPath("matchConditions")); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	check()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 20
	for range times {
		check()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 100<<10 {
		t.Errorf("a webhook's condition takes %d KB", each>>10)
	}
}

func policy(hasParams bool, expression string, variables ...admissionv1.Variable) *admissionv1.ValidatingAdmissionPolicySpec {
	s := &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{
					APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"},
				},
			},
		}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "a.example", Expression: "request.operation == 'CREATE'"}},
		Variables:       variables,
		Validations:     []admissionv1.Validation{{Expression: expression, MessageExpression: "'because of ' + object.metadata.name"}},
	}
	if hasParams {
		s.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	}
	setMatchDefaults(s.MatchConstraints)
	fill(&s.FailurePolicy, admissionv1.Fail)
	return s
}

// Whoever keeps policies in a repository applies them again and again.
func TestAPolicyThatIsWrittenAgainCompilesNothing(t *testing.T) {
	p := policy(true, "variables.b > 2 && params.data.x == 'y'",
		admissionv1.Variable{Name: "a", Expression: "object.metadata.name"}, admissionv1.Variable{Name: "b", Expression: "size(variables.a)"})
	check := func() {
		if errs := validateValidatingPolicy(p); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
	check()
	if allocations := testing.AllocsPerRun(20, check); allocations > 300 {
		t.Errorf("a policy that is known makes %.0f things", allocations)
	}
}

// The same expression means another thing with other variables, other parameters, and where it may give something else.
func TestExpressionsAreKnownByAllThatTheyDependOn(t *testing.T) {
	const sized = "size(variables.a) > 1"
	text, number := admissionv1.Variable{Name: "a", Expression: "'text'"}, admissionv1.Variable{Name: "a", Expression: "17"}
	size := admissionv1.Variable{Name: "b", Expression: "size(variables.a)"}
	for _, c := range []struct {
		what string
		of   *admissionv1.ValidatingAdmissionPolicySpec
		good bool
	}{
		{"a text has a size", policy(false, sized, text), true},
		{"a number has none", policy(false, sized, number), false},
		{"nor has what is not there", policy(false, sized), false},
		{"of two with one name the last one counts", policy(false, sized, number, text), false},
		{"a variable may use one before it", policy(false, "variables.b > 1", text, size), true},
		{"which must be what it needs", policy(false, "variables.b > 1", number, size), false},
		{"and be before it", policy(false, "variables.b > 1", size, text), false},
		{"there are parameters", policy(true, "params.x == 1"), true},
		{"there are none", policy(false, "params.x == 1"), false},
		{"a reason may be a text", policy(false, "true"), true},
		{"a rule may not", policy(false, "'because of ' + object.metadata.name"), false},
	} {
		for range 2 {
			if errs := validateValidatingPolicy(c.of); (len(errs) == 0) != c.good {
				t.Errorf("%s: %v", c.what, errs)
			}
		}
	}
}
