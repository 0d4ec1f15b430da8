package onbindings

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func on(operation admissionv1.OperationType, group, version, resource string) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{operation},
		Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}}}
}

// TestWhatIsAboutBindings: which rules mean bindings of pods, in each kind of configuration.
func TestWhatIsAboutBindings(t *testing.T) {
	scoped := func(r admissionv1.RuleWithOperations, s admissionv1.ScopeType) admissionv1.RuleWithOperations {
		r.Scope = &s
		return r
	}
	several := on(admissionv1.Update, "apps", "v1beta1", "pods")
	several.Operations = append(several.Operations, admissionv1.Create)
	several.APIGroups, several.APIVersions = append(several.APIGroups, ""), append(several.APIVersions, "v1")
	several.Resources = append(several.Resources, "pods/binding")
	for name, c := range map[string]struct {
		rule admissionv1.RuleWithOperations
		want bool
	}{
		"bindings":                {on("CREATE", "", "v1", "pods/binding"), true},
		"parts of pods":           {on("CREATE", "", "v1", "pods/*"), true},
		"bindings of all":         {on("CREATE", "", "v1", "*/binding"), true},
		"everything":              {on("*", "*", "*", "*/*"), true},
		"bindings among others":   {several, true},
		"in namespaces":           {scoped(on("CREATE", "", "v1", "pods/binding"), admissionv1.NamespacedScope), true},
		"anywhere":                {scoped(on("CREATE", "", "v1", "pods/binding"), admissionv1.AllScopes), true},
		"in no namespace":         {scoped(on("CREATE", "", "v1", "pods/binding"), admissionv1.ClusterScope), false},
		"pods":                    {on("CREATE", "", "v1", "pods"), false},
		"all but parts":           {on("*", "*", "*", "*"), false},
		"another part":            {on("CREATE", "", "v1", "pods/eviction"), false},
		"bindings by the old way": {on("CREATE", "", "v1", "bindings"), false},
		"updates":                 {on("UPDATE", "", "v1", "pods/binding"), false},
		"connections":             {on("CONNECT", "", "v1", "pods/*"), false},
		"another group":           {on("CREATE", "apps", "v1", "pods/binding"), false},
		"another version":         {on("CREATE", "", "v2", "pods/binding"), false},
		"nothing":                 {admissionv1.RuleWithOperations{}, false},
	} {
		other := on("CREATE", "apps", "v1", "daemonsets")
		rules := []admissionv1.RuleWithOperations{other, c.rule}
		match := &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			{RuleWithOperations: other}, {RuleWithOperations: c.rule},
		}}
		for kind, configured := range map[string]any{
			"mutating webhook": &admissionv1.MutatingWebhookConfiguration{
				Webhooks: []admissionv1.MutatingWebhook{{}, {Rules: rules}}},
			"validating webhook": &admissionv1.ValidatingWebhookConfiguration{
				Webhooks: []admissionv1.ValidatingWebhook{{}, {Rules: rules}}},
			"mutating policy": &admissionv1.MutatingAdmissionPolicy{
				Spec: admissionv1.MutatingAdmissionPolicySpec{MatchConstraints: match}},
			"validating policy": &admissionv1.ValidatingAdmissionPolicy{
				Spec: admissionv1.ValidatingAdmissionPolicySpec{MatchConstraints: match}},
		} {
			if got := Is(configured); got != c.want {
				t.Errorf("%s, %s: %v, want %v", name, kind, got, c.want)
			}
		}
	}
	for kind, configured := range map[string]any{
		"mutating policy": &admissionv1.MutatingAdmissionPolicy{}, "validating policy": &admissionv1.ValidatingAdmissionPolicy{},
		"a kind that nobody knows": &corev1.Pod{},
	} {
		if !Is(configured) {
			t.Errorf("%s that does not say what it is about may be about bindings", kind)
		}
	}
}

// TestWhatIsConfigured: nothing is known before it was read; then each change counts.
func TestWhatIsConfigured(t *testing.T) {
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	watched := New(factory.Admissionregistration().V1())
	if !watched() {
		t.Error("before anything was read bindings are not watched")
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	if watched() {
		t.Error("where nothing is configured bindings are watched")
	}
	informer := factory.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer()
	configured := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "w"}}
	err := informer.GetStore().Add(configured)
	if err != nil || watched() {
		t.Errorf("a webhook without rules watches bindings: %v", err)
	}
	configured = configured.DeepCopy()
	configured.Webhooks = []admissionv1.ValidatingWebhook{{Rules: []admissionv1.RuleWithOperations{on("*", "*", "*", "*/*")}}}
	err = informer.GetStore().Update(configured)
	if err != nil || !watched() {
		t.Errorf("a webhook for everything does not watch bindings: %v", err)
	}
}
