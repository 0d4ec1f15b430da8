package registration

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// created is a Node as an API server with the policy stores it, by the code of Kubernetes' API server.
func created(t *testing.T, n *corev1.Node, s *v1alpha1.NodeStartup) *corev1.Node {
	t.Helper()
	policy, _ := StartupPolicy()
	gv, objects := corev1.SchemeGroupVersion, admission.NewObjectInterfacesFromScheme(clientscheme.Scheme)
	attributes := admission.NewAttributesRecord(n, nil, gv.WithKind("Node"), "", n.Name, gv.WithResource("nodes"), "",
		admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "somebody"})
	versioned, err := admission.NewVersionedAttributes(attributes, gv.WithKind("Node"), objects)
	if err != nil {
		t.Fatal(err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		t.Fatal(err)
	}
	params := &unstructured.Unstructured{Object: content}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	declared := plugincel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true}
	var conditions []plugincel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	compiled := compiler.CompileCondition(conditions, declared, environment.StoredExpressions)
	matches := matchconditions.NewMatcher(compiled, policy.Spec.FailurePolicy, "policy", "mutate", policy.Name).
		Match(t.Context(), versioned, params, nil)
	if errs := compiled.CompilationErrors(); len(errs) > 0 || matches.Error != nil {
		t.Fatalf("the conditions: %v, %v", errs, matches.Error)
	}
	if !matches.Matches {
		return n
	}
	declared.HasPatchTypes = true
	mutates := patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(
		&patch.JSONPatchCondition{Expression: policy.Spec.Mutations[0].JSONPatch.Expression}, declared,
		environment.StoredExpressions))
	out, err := mutates.Patch(t.Context(), patch.Request{MatchedResource: gv.WithResource("nodes"),
		VersionedAttributes: versioned, ObjectInterfaces: objects,
		OptionalVariables: plugincel.OptionalVariableBindings{VersionedParams: params}}, celconfig.RuntimeCELCostBudget)
	if err != nil {
		t.Fatalf("the mutation: %v", err)
	}
	return out.(*corev1.Node)
}

// The policy closes exactly the Nodes that the webhook would close, with the same taint, and keeps other taints.
func TestStartupPolicyClosesAsTheWebhookDoes(t *testing.T) {
	expression := func(key string, operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: key, Operator: operator, Values: values}}}
	}
	label := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	taint := func(key, value string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: value, Effect: effect}}
	}
	other := taint("other", "v", corev1.TaintEffectNoExecute)
	const join = v1alpha1.GateJoin
	for name, c := range map[string]struct {
		nodes    *metav1.LabelSelector
		gate     v1alpha1.StartupGate
		tolerate metav1.ConditionStatus
		taints   []corev1.Taint
		closed   bool
	}{
		"all nodes":                       {nil, join, "True", nil, true},
		"a node with a taint":             {nil, join, "True", other, true},
		"an empty selector":               {&metav1.LabelSelector{}, join, "True", nil, true},
		"its label":                       {label("size", "xl"), join, "True", nil, true},
		"another label":                   {label("size", "s"), join, "True", nil, false},
		"a label that it has not":         {label("rack", "1"), join, "True", nil, false},
		"In":                              {expression("size", "In", "s", "xl"), join, "True", nil, true},
		"In others":                       {expression("size", "In", "s"), join, "True", nil, false},
		"NotIn":                           {expression("size", "NotIn", "xl"), join, "True", nil, false},
		"NotIn, without the label":        {expression("rack", "NotIn", "1"), join, "True", nil, true},
		"Exists":                          {expression("size", "Exists"), join, "True", nil, true},
		"Exists, without the label":       {expression("rack", "Exists"), join, "True", nil, false},
		"DoesNotExist":                    {expression("rack", "DoesNotExist"), join, "True", nil, true},
		"DoesNotExist, with the label":    {expression("size", "DoesNotExist"), join, "True", nil, false},
		"a daemon does not tolerate it":   {nil, join, "False", nil, false},
		"nobody has said that daemons do": {nil, join, "", nil, false},
		"no gate":                         {nil, v1alpha1.GateNone, "", nil, true},
		"closed by its kubelet":           {nil, join, "True", taint(nodestartup.TaintKey, "x_1", "NoSchedule"), false},
		"no gate, and a taint of its own": {nil, v1alpha1.GateNone, "True", other, true},
	} {
		s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		s.Spec.Nodes, s.Spec.Gate = c.nodes, c.gate
		if c.tolerate != "" {
			s.Status.Conditions = []metav1.Condition{{Type: plan.DaemonSetsTolerate, Status: c.tolerate}}
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"size": "xl"}}}
		n.Spec.Taints = c.taints
		want := slices.Clone(c.taints)
		if c.closed {
			gate := nodestartup.Gate(nodestartup.Place{Startup: "default", Group: 1}, c.gate, time.Time{})
			gate.TimeAdded = nil // whoever leads the node adds it
			want = append(want, *gate)
		}
		if got := created(t, n, s).Spec.Taints; !slices.Equal(got, want) {
			t.Errorf("%s: the taints are %v, want %v", name, got, want)
		}
	}
	bare := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "default", DeletionTimestamp: new(metav1.Now())}}
	bare.Spec.Gate = v1alpha1.GateNone
	if got := created(t, &corev1.Node{}, bare).Spec.Taints; len(got) > 0 {
		t.Errorf("a NodeStartup on its way out closes a node: %v", got)
	}
	bare.DeletionTimestamp = nil
	if got := created(t, &corev1.Node{}, bare).Spec.Taints; len(got) != 1 {
		t.Errorf("a node without labels has %v", got)
	}
}

func TestStartupPolicyIsPrinted(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		var out bytes.Buffer
		err := PrintStartupPolicy(&out, version)
		if text := out.String(); err != nil || strings.Count(text, "\n---\n") != 1 || strings.Contains(text, "status:") ||
			strings.Count(text, "apiVersion: admissionregistration.k8s.io/"+version+"\n") != 2 {
			t.Errorf("%v\n%s", err, text)
		}
	}
	if err := PrintStartupPolicy(&bytes.Buffer{}, "v2"); err == nil || !strings.Contains(err.Error(), `not of "v2"`) {
		t.Errorf("of version v2: %v", err)
	}
}

// TestPoliciesThatCloseNodes are known by the taint that they write into Nodes that are created.
func TestPoliciesThatCloseNodes(t *testing.T) {
	type policy = admissionv1.MutatingAdmissionPolicy
	rule := func(p *policy) *admissionv1.NamedRuleWithOperations {
		return &p.Spec.MatchConstraints.ResourceRules[0]
	}
	const own = `Object{spec: Object.spec{taints: [Object.spec.taints{key: "everynode.io/starting"}]}}`
	for name, c := range map[string]struct {
		change         func(*policy)
		closes, prints bool
	}{
		"the printed one": {func(*policy) {}, true, true},
		"of another name": {func(p *policy) { p.Name = "of-a-team" }, true, true},
		"by other rules":  {func(p *policy) { p.Spec.MatchConditions = nil }, true, false},
		"for all that joins": {func(p *policy) {
			rule(p).Resources, rule(p).Operations = []string{"*"}, []admissionv1.OperationType{"*"}
		}, true, false},
		"by configuration": {func(p *policy) {
			p.Spec.Mutations = []admissionv1.Mutation{{ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: own}}}
		}, true, false},
		"by a variable": {func(p *policy) {
			p.Spec.Mutations[0].JSONPatch.Expression = "variables.closed"
			p.Spec.Variables = []admissionv1.Variable{{Name: "closed", Expression: own}}
		}, true, false},
		"with another taint": {func(p *policy) { p.Spec.Mutations[0].JSONPatch.Expression = "[]" }, false, false},
		"of pods":            {func(p *policy) { rule(p).Resources = []string{"pods"} }, false, false},
		"of Nodes that change": {func(p *policy) { rule(p).Operations = []admissionv1.OperationType{admissionv1.Update} },
			false, false},
		"of nothing": {func(p *policy) { *p = policy{} }, false, false},
	} {
		p, b := StartupPolicy()
		c.change(p)
		b.Spec.PolicyName = p.Name
		if ClosesNodes(p) != c.closes || SameStartupPolicy(p, b) != c.prints {
			t.Errorf("%s: it closes nodes: %v, and is printed: %v", name, ClosesNodes(p), SameStartupPolicy(p, b))
		}
	}
}
