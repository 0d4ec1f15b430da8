package admission

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var pods = admissionv1.RuleWithOperations{
	Operations: []admissionv1.OperationType{admissionv1.Create},
	Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
}

func newWebhook() *admissionv1.ValidatingWebhook {
	return &admissionv1.ValidatingWebhook{
		Name:                    "w.example.com",
		ClientConfig:            admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "n", Name: "s"}},
		Rules:                   []admissionv1.RuleWithOperations{*pods.DeepCopy()},
		SideEffects:             ptr.To(admissionv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// A webhook or policy without selectors is about everything, and says so.
func TestDefaultsSelectEverything(t *testing.T) {
	w := newWebhook()
	setWebhookDefaults(ofValidating(w))
	if *w.FailurePolicy != admissionv1.Fail || *w.MatchPolicy != admissionv1.Equivalent || w.NamespaceSelector == nil || w.ObjectSelector == nil ||
		*w.TimeoutSeconds != 10 || *w.ClientConfig.Service.Port != 443 || *w.Rules[0].Scope != admissionv1.AllScopes {
		t.Errorf("webhook: %+v", w)
	}
	m := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: *pods.DeepCopy()}}}
	setMatchDefaults(m)
	if *m.MatchPolicy != admissionv1.Equivalent || m.NamespaceSelector == nil || m.ObjectSelector == nil || *m.ResourceRules[0].Scope != admissionv1.AllScopes {
		t.Errorf("policy: %+v", m)
	}
	given := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	narrow := &admissionv1.MatchResources{NamespaceSelector: given}
	setMatchDefaults(narrow)
	if narrow.NamespaceSelector != given {
		t.Error("a given selector was replaced")
	}
}

func TestWebhooks(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*admissionv1.ValidatingWebhook)
		want string
	}{
		"valid":        {func(*admissionv1.ValidatingWebhook) {}, ""},
		"short name":   {func(w *admissionv1.ValidatingWebhook) { w.Name = "w" }, `webhooks[0].name: Invalid value: "w": should be a domain with at least three segments separated by dots`},
		"no effects":   {func(w *admissionv1.ValidatingWebhook) { w.SideEffects = nil }, "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"},
		"slow":         {func(w *admissionv1.ValidatingWebhook) { w.TimeoutSeconds = ptr.To[int32](31) }, "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"},
		"no version":   {func(w *admissionv1.ValidatingWebhook) { w.AdmissionReviewVersions = nil }, "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1"},
		"nobody there": {func(w *admissionv1.ValidatingWebhook) { w.ClientConfig.Service = nil }, "webhooks[0].clientConfig: Required value: exactly one of url or service is required"},
		"plain http": {func(w *admissionv1.ValidatingWebhook) {
			w.ClientConfig = admissionv1.WebhookClientConfig{URL: ptr.To("http://h/x")}
		}, `webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]`},
		"wildcard and more": {func(w *admissionv1.ValidatingWebhook) { w.Rules[0].APIGroups = []string{"*", "apps"} },
			`webhooks[0].rules[0].apiGroups: Invalid value: ["*","apps"]: if '*' is present, must not specify other API groups`},
		"broken condition": {func(w *admissionv1.ValidatingWebhook) {
			w.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: "1 +"}}
		}, `webhooks[0].matchConditions[0].expression: Invalid value: "1 +": compilation failed: ERROR: <input>:1:4: Syntax error`},
	} {
		w := newWebhook()
		c.edit(w)
		setWebhookDefaults(ofValidating(w))
		errs := validateWebhooks([]webhook{ofValidating(w)})
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), c.want)) {
			t.Errorf("%s: got %v, want %s", name, errs, c.want)
		}
	}
}

func newPolicy() *admissionv1.ValidatingAdmissionPolicySpec {
	return &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: *pods.DeepCopy()}}},
		Variables:        []admissionv1.Variable{{Name: "name", Expression: "object.metadata.name"}},
		Validations:      []admissionv1.Validation{{Expression: "variables.name != 'x'"}},
	}
}

func TestPolicies(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*admissionv1.ValidatingAdmissionPolicySpec)
		want string
	}{
		"valid":            {func(*admissionv1.ValidatingAdmissionPolicySpec) {}, ""},
		"about nothing":    {func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.MatchConstraints = nil }, "spec.matchConstraints: Required value"},
		"unknown variable": {func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "variables.other" }, `spec.validations[0].expression: Invalid value: "variables.other": compilation failed`},
		"not a condition":  {func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "'text'" }, `spec.validations[0].expression: Invalid value: "'text'": must evaluate to bool`},
		"parameters that are not declared": {func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = "params.x" },
			`spec.validations[0].expression: Invalid value: "params.x": compilation failed`},
		"declared parameters": {func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			s.Validations[0].Expression = "params.x == 'y'"
		}, ""},
		"odd reason": {func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.Validations[0].Reason = ptr.To[metav1.StatusReason]("Mood")
		},
			`spec.validations[0].reason: Unsupported value: "Mood": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"`},
	} {
		s := newPolicy()
		c.edit(s)
		errs := validateValidatingPolicy(s)
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), c.want)) {
			t.Errorf("%s: got %v, want %s", name, errs, c.want)
		}
	}
}

func TestMutations(t *testing.T) {
	s := &admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints:   newPolicy().MatchConstraints,
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"a": "b"}}}`}}},
	}
	if errs := validateMutatingPolicy(s); len(errs) > 0 {
		t.Errorf("valid: %v", errs)
	}
	s.Mutations[0].PatchType = admissionv1.PatchTypeJSONPatch
	if errs := validateMutatingPolicy(s); len(errs) != 1 || errs[0].Field != "spec.mutations[0].applyConfiguration" {
		t.Errorf("wrong patch type: %v", errs)
	}
}

func TestBindings(t *testing.T) {
	if errs := validateBinding("p", nil, nil); len(errs) > 0 {
		t.Errorf("valid: %v", errs)
	}
	both := &admissionv1.ParamRef{Name: "a", Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: ptr.To(admissionv1.DenyAction)}
	if errs := validateBinding("p", both, nil); len(errs) != 1 || errs[0].Error() != "spec.paramRef.name: Forbidden: name and selector are mutually exclusive" {
		t.Errorf("name and selector: %v", errs)
	}
	if errs := validateActions([]admissionv1.ValidationAction{admissionv1.Deny, admissionv1.Warn}, specPath); len(errs) != 1 {
		t.Errorf("deny and warn: %v", errs)
	}
}
