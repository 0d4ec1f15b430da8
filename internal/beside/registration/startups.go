package registration

import (
	"fmt"
	"io"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// StartupPolicyName is that of the policy by which an API server closes Nodes itself, and of its binding.
const StartupPolicyName = "everynode-startup"

// StartupPolicyVersions are those of admissionregistration.k8s.io in which an API server may have that policy. What is
// stored in one is read and deleted in each that is served.
var StartupPolicyVersions = []string{"v1", "v1beta1"}

// The expressions of that policy. What a selector of labels chooses is written out, since CEL has none; that the listed
// DaemonSets tolerate the taint is what the leader says in the status of the NodeStartup.
const (
	nodeLabels = "object.metadata.?labels.orValue({})"
	chosen     = "params.spec.?nodes.?matchLabels.orValue({}).all(k, k in " + nodeLabels + " && " + nodeLabels +
		"[k] == params.spec.nodes.matchLabels[k]) && params.spec.?nodes.?matchExpressions.orValue([]).all(e, " +
		`e.operator == "In" ? e.key in ` + nodeLabels + " && " + nodeLabels + "[e.key] in e.values : " +
		`e.operator == "NotIn" ? !(e.key in ` + nodeLabels + " && " + nodeLabels + "[e.key] in e.values) : " +
		`e.operator == "Exists" ? e.key in ` + nodeLabels + " : " +
		`e.operator == "DoesNotExist" && !(e.key in ` + nodeLabels + "))"
	keepsOrder = `params.spec.?gate.orValue("") == "` + string(v1alpha1.GateNone) + `"`
	tolerated  = keepsOrder + ` || params.?status.?conditions.orValue([]).exists(c, c.type == "` +
		plan.DaemonSetsTolerate + `" && c.status == "True")`
	closes = `(has(object.spec.taints) ? [] : [JSONPatch{op: "add", path: "/spec/taints", value: []}]) + ` +
		`[JSONPatch{op: "add", path: "/spec/taints/-", value: Object.spec.taints{key: "` + nodestartup.TaintKey +
		`", value: params.metadata.name + "_1", effect: ` + keepsOrder + ` ? "PreferNoSchedule" : "NoSchedule"}}]`
)

// StartupPolicy is the policy by which an API server closes the Nodes that NodeStartups choose in the write that
// creates them, without asking anybody. A Node joins open where it cannot be evaluated, and while a listed DaemonSet
// does not tolerate the taint.
func StartupPolicy() (*admission.MutatingAdmissionPolicy, *admission.MutatingAdmissionPolicyBinding) {
	rule := admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"},
		Scope: ptr.To(admission.ClusterScope)}
	p := &admission.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: StartupPolicyName}}
	p.Spec = admission.MutatingAdmissionPolicySpec{
		ParamKind:     &admission.ParamKind{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeStartup"},
		FailurePolicy: ptr.To(admission.Ignore),
		MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{
			RuleWithOperations: admission.RuleWithOperations{Rule: rule,
				Operations: []admission.OperationType{admission.Create}}}}},
		MatchConditions: []admission.MatchCondition{
			{Name: "not-closed-yet", Expression: notClosedYet},
			{Name: "not-on-its-way-out", Expression: "!has(params.metadata.deletionTimestamp)"},
			{Name: "chosen", Expression: chosen},
			{Name: "its-daemons-tolerate-it", Expression: tolerated},
		},
		Mutations: []admission.Mutation{{PatchType: admission.PatchTypeJSONPatch,
			JSONPatch: &admission.JSONPatch{Expression: closes}}},
		// Whoever writes the taints after it may have taken it away: it looks again.
		ReinvocationPolicy: admission.IfNeededReinvocationPolicy,
	}
	b := &admission.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: StartupPolicyName}}
	b.Spec = admission.MutatingAdmissionPolicyBindingSpec{PolicyName: StartupPolicyName,
		ParamRef: &admission.ParamRef{Selector: &metav1.LabelSelector{},
			ParameterNotFoundAction: ptr.To(admission.AllowAction)}}
	return p, b
}

// IsStartupPolicy reports whether a stored policy does what StartupPolicy says, whatever its name is and the API server
// has filled in.
func IsStartupPolicy(p *admission.MutatingAdmissionPolicy) bool {
	policy, _ := StartupPolicy()
	return equality.Semantic.DeepDerivative(policy.Spec, p.Spec)
}

// SameStartupPolicy reports the same of a policy and its binding.
func SameStartupPolicy(p *admission.MutatingAdmissionPolicy, b *admission.MutatingAdmissionPolicyBinding) bool {
	_, binding := StartupPolicy()
	binding.Spec.PolicyName = p.Name
	return IsStartupPolicy(p) && equality.Semantic.DeepDerivative(binding.Spec, b.Spec)
}

// ClosesNodes reports whether a policy writes the taint of nodes that start into Nodes that are created: the printed
// one under any name, as an earlier version printed it, or one that somebody has made of it.
func ClosesNodes(p *admission.MutatingAdmissionPolicy) bool {
	if p.Spec.MatchConstraints == nil {
		return false
	}
	joins := func(r admission.NamedRuleWithOperations) bool {
		return hasOrAll(r.APIGroups, "") && hasOrAll(r.Resources, "nodes") && hasOrAll(r.Operations, admission.Create)
	}
	var says []string
	for _, v := range p.Spec.Variables {
		says = append(says, v.Expression)
	}
	for _, m := range p.Spec.Mutations {
		if m.JSONPatch != nil {
			says = append(says, m.JSONPatch.Expression)
		}
		if m.ApplyConfiguration != nil {
			says = append(says, m.ApplyConfiguration.Expression)
		}
	}
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, joins) &&
		strings.Contains(strings.Join(says, "\n"), nodestartup.TaintKey)
}

func hasOrAll[T ~string](all []T, one T) bool {
	return slices.Contains(all, one) || slices.Contains(all, "*")
}

// PrintStartupPolicy writes both as manifests of a version of admissionregistration.k8s.io: v1, or v1beta1, which says
// the same.
func PrintStartupPolicy(out io.Writer, version string) error {
	if !slices.Contains(StartupPolicyVersions, version) {
		return fmt.Errorf("a policy that changes objects is of version v1 or v1beta1, and not of %q", version)
	}
	p, b := StartupPolicy()
	group := admission.GroupName + "/" + version
	p.TypeMeta = metav1.TypeMeta{APIVersion: group, Kind: "MutatingAdmissionPolicy"}
	b.TypeMeta = metav1.TypeMeta{APIVersion: group, Kind: "MutatingAdmissionPolicyBinding"}
	for _, o := range []runtime.Object{p, b} {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return fmt.Errorf("write the policy %s: %w", StartupPolicyName, err)
		}
		unstructured.RemoveNestedField(object, "metadata", "creationTimestamp") // only the API server says that
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("write the policy %s: %w", StartupPolicyName, err)
		}
		_, err = fmt.Fprintf(out, "---\n%s", text)
		if err != nil {
			return err
		}
	}
	return nil
}
