// Package registration makes the objects by which an API server asks Everynode about DaemonSets and their pods, and the
// net below: policies inside the API server that hold while nobody answers. It is pure.
package registration

import (
	"fmt"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Name is that of the objects. API servers ask webhooks in the order of the names of their configurations: this one
// comes before those that add to a pod, since it takes off what was added for another template.
const Name = "000-everynode"

// The names of the webhooks for DaemonSets, for those among them that are placed otherwise, and for Nodes that join.
const (
	SetsWebhook      = "daemonsets.everynode.io"
	PlacementWebhook = "placement.everynode.io"
	NodesWebhook     = "nodes.everynode.io"
	// OthersWebhook is that for pods of DaemonSets which another account makes than the DaemonSet controller's.
	OthersWebhook = "pods-of-others.everynode.io"
)

// Oldest is the oldest version of Kubernetes beside whose DaemonSet controller Everynode runs.
const Oldest = "1.33"

// TooOld reports whether an API server of a version is older than that. The error says that it is no version.
func TooOld(is string) (bool, error) {
	v, err := version.ParseGeneric(is)
	return err == nil && v.LessThan(version.MustParseGeneric(Oldest)), err
}

// Paths at which the webhook is asked.
const (
	PodsPath      = "/pods"
	SetsPath      = "/daemonsets"
	PlacementPath = "/placement"
	NodesPath     = "/nodes"
)

// Options say how the webhook is reached and for whom it answers.
type Options struct {
	// URL is where the API server finds the webhook; without it the Service is.
	URL string
	// Namespace and Service are those of the webhook's Service, on port 443.
	Namespace, Service string
	// Trusted are the authorities of its certificate, as PEM.
	Trusted []byte
	// Maker is the account of the controller that makes DaemonSets' pods, Account our own.
	Maker, Account string
	// Fail has pods and DaemonSets refused while the webhook does not answer, but for those in their node's network.
	Fail bool
	// Startups tells that there are NodeStartups, so that it is asked about Nodes that join.
	Startups bool
}

// Webhooks is the configuration of the webhook.
func Webhooks(o Options) *admission.MutatingWebhookConfiguration {
	pods := hook(o, "pods.everynode.io", PodsPath, "", "pods")
	pods.Rules[0].Operations = []admission.OperationType{admission.Create}
	pods.MatchConditions = []admission.MatchCondition{
		{Name: "made-by-the-daemonset-controller", Expression: fmt.Sprintf("request.userInfo.username == %q", o.Maker)},
		ofADaemonSet,
	}
	// Whoever adds to the pod after us may change what we took off: we look again.
	pods.ReinvocationPolicy = ptr.To(admission.IfNeededReinvocationPolicy)
	sets := hook(o, SetsWebhook, SetsPath, "apps", "daemonsets")
	sets.Rules[0].Operations = []admission.OperationType{admission.Create, admission.Update}
	// Other placement holds on all nodes at once. So it waits until somebody can say whether it is approved.
	moves := hook(o, PlacementWebhook, PlacementPath, "apps", "daemonsets")
	moves.FailurePolicy = ptr.To(admission.Fail)
	moves.Rules[0].Operations = []admission.OperationType{admission.Update}
	moves.MatchConditions = []admission.MatchCondition{
		{Name: "not-everynode-itself", Expression: fmt.Sprintf("request.userInfo.username != %q", o.Account)},
		takenOver, {Name: "placed-otherwise", Expression: placedOtherwise},
	}
	all := []admission.MutatingWebhook{pods, sets, moves}
	if o.Fail {
		strictPods, hostPods := split(pods, "object.spec")
		strictSets, hostSets := split(sets, "object.spec.template.spec")
		all = []admission.MutatingWebhook{strictPods, strictSets, moves, hostPods, hostSets}
	}
	all = append(all, others(o))
	if o.Startups {
		all = append(all, joins(o))
	}
	return &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: Name}, Webhooks: all}
}

// ofADaemonSet tells that a DaemonSet controls the object.
var ofADaemonSet = admission.MatchCondition{Name: "of-a-daemonset", Expression: "object.metadata." +
	`?ownerReferences.orValue([]).exists(o, o.kind == "DaemonSet" && o.?controller.orValue(false))`}

// others is the webhook for pods that are made by another account, which it marks. None is refused for it.
func others(o Options) admission.MutatingWebhook {
	o.Fail = false
	h := hook(o, OthersWebhook, PodsPath, "", "pods")
	h.Rules[0].Operations = []admission.OperationType{admission.Create}
	h.MatchConditions = []admission.MatchCondition{
		{Name: "made-by-another-account", Expression: fmt.Sprintf("request.userInfo.username != %q", o.Maker)}, ofADaemonSet,
	}
	return h
}

// split has what runs in its node's network be admitted while nobody answers, where all else is refused: such daemons
// make the network for pods, without which nobody could answer again. at is where an object has the specification of
// pods.
func split(h admission.MutatingWebhook, at string) (strict, host admission.MutatingWebhook) {
	inHost := at + ".?hostNetwork.orValue(false) == true"
	strict, host = *h.DeepCopy(), *h.DeepCopy()
	strict.MatchConditions = append(strict.MatchConditions,
		admission.MatchCondition{Name: "not-in-its-nodes-network", Expression: "!(" + inHost + ")"})
	host.MatchConditions = append(host.MatchConditions,
		admission.MatchCondition{Name: "in-its-nodes-network", Expression: inHost})
	host.Name, host.FailurePolicy = "host-"+h.Name, ptr.To(admission.Ignore)
	return strict, host
}

// notClosedYet is true of a Node that is created without the taint of nodes that start.
const notClosedYet = `!object.spec.?taints.orValue([]).exists(t, t.key == "` + nodestartup.TaintKey + `")`

// joins is the webhook for Nodes that are created. A node is never kept from joining by it.
func joins(o Options) admission.MutatingWebhook {
	o.Fail = false
	h := hook(o, NodesWebhook, NodesPath, "", "nodes")
	h.Rules[0].Operations = []admission.OperationType{admission.Create}
	h.Rules[0].Scope = ptr.To(admission.ClusterScope)
	h.MatchConditions = []admission.MatchCondition{{Name: "not-closed-yet", Expression: notClosedYet}}
	// Whoever writes the taints after us may have taken ours away: we look again.
	h.ReinvocationPolicy = ptr.To(admission.IfNeededReinvocationPolicy)
	return h
}

func hook(o Options, name, path, group, resource string) admission.MutatingWebhook {
	h := admission.MutatingWebhook{
		Name: name, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To[int32](3),
		SideEffects: ptr.To(admission.SideEffectClassNone), FailurePolicy: ptr.To(admission.Ignore),
		MatchPolicy: ptr.To(admission.Equivalent), NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector: &metav1.LabelSelector{}, ReinvocationPolicy: ptr.To(admission.NeverReinvocationPolicy),
		ClientConfig: admission.WebhookClientConfig{CABundle: o.Trusted},
		Rules: []admission.RuleWithOperations{{Rule: admission.Rule{
			APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource},
			Scope: ptr.To(admission.NamespacedScope),
		}}},
	}
	if o.Fail {
		h.FailurePolicy = ptr.To(admission.Fail)
	}
	if o.URL != "" {
		h.ClientConfig.URL = ptr.To(o.URL + path)
		return h
	}
	h.ClientConfig.Service = &admission.ServiceReference{
		Namespace: o.Namespace, Name: o.Service, Path: ptr.To(path), Port: ptr.To[int32](443),
	}
	return h
}

// placedOtherwise tells in CEL that what chooses nodes is another, or written otherwise.
var placedOtherwise = func() string {
	var differ []string
	for field, none := range map[string]string{
		"?nodeName": "''", "?nodeSelector": "{}", "?affinity.?nodeAffinity": "{}", "?tolerations": "[]",
	} {
		is := ".spec.template.spec." + field + ".orValue(" + none + ")"
		differ = append(differ, "object"+is+" != oldObject"+is)
	}
	slices.Sort(differ)
	return strings.Join(differ, " ||\n")
}()

// selected tells in CEL whether a policy, which is the parameter, selects the object.
const selected = `params.spec.?selector.?matchLabels.orValue({}).all(k, k in object.metadata.?labels.orValue({}) &&
  object.metadata.labels[k] == params.spec.selector.matchLabels[k]) &&
params.spec.?selector.?matchExpressions.orValue([]).all(e,
  e.operator == 'Exists' ? e.key in object.metadata.?labels.orValue({}) :
  e.operator == 'DoesNotExist' ? !(e.key in object.metadata.?labels.orValue({})) :
  e.operator == 'In' ? e.key in object.metadata.?labels.orValue({}) && object.metadata.labels[e.key] in e.values :
  !(e.key in object.metadata.?labels.orValue({})) || !(object.metadata.labels[e.key] in e.values))`

// selectedBefore tells it of the object as it was.
var selectedBefore = strings.ReplaceAll(selected, "object.", "oldObject.")

// waits tells that the DaemonSet is not given to the other controller. With rollingUpdate somebody wants limits that
// nobody takes down while the webhook is away.
const waits = "object.spec.updateStrategy.type == 'OnDelete' && !has(object.spec.updateStrategy.rollingUpdate)"

// away says what to do about a refusal of the net.
const away = "Everynode's webhook does not answer. Write it again when it does: everynode doctor says what is wrong. " +
	"To go on without Everynode: everynode controller --leave"

// takenOver tells that the DaemonSet was stored for a policy, by what is stored: to take the annotation off does not
// help.
var takenOver = admission.MatchCondition{
	Name: "it-was-taken-over", Expression: "'" + admit.UpdateStrategy + "' in oldObject.metadata.?annotations.orValue({})",
}

// Net are the policies inside the API server. The first looks at DaemonSets that are made, the second at those that are
// changed. The third has only those who may approve take one out of a policy in which a wave waits for approval.
func Net(o Options) []*admission.ValidatingAdmissionPolicy {
	made := policy(o, Name+"-made", admission.Create)
	made.Spec.ParamKind = &admission.ParamKind{APIVersion: "everynode.io/v1alpha1", Kind: "RolloutPolicy"}
	made.Spec.Validations = []admission.Validation{{
		Expression: "!(" + selected + ") || " + waits,
		MessageExpression: fmt.Sprintf(`"RolloutPolicy " + params.metadata.name + " selects this DaemonSet, and " + %q`,
			away),
		Reason: ptr.To(metav1.StatusReasonForbidden),
	}}
	changed := policy(o, Name+"-changed", admission.Update)
	changed.Spec.MatchConditions = append(changed.Spec.MatchConditions, takenOver)
	changed.Spec.Validations = []admission.Validation{{
		// An author's own OnDelete has no annotation, and one that goes on following keeps it.
		Expression: waits,
		Message:    "this DaemonSet follows a RolloutPolicy, and " + away,
		Reason:     ptr.To(metav1.StatusReasonForbidden),
	}}
	left := policy(o, Name+"-left", admission.Update)
	left.Spec.ParamKind = made.Spec.ParamKind
	left.Spec.MatchConditions = append(left.Spec.MatchConditions, takenOver)
	left.Spec.Validations = []admission.Validation{{
		Expression: "!params.spec.?waves.orValue([]).exists(w, w.?approval.orValue('') == 'Manual') || !(" + selectedBefore +
			") || '" + admit.UpdateStrategy + "' in object.metadata.?annotations.orValue({}) && (" + selected + ") || " +
			"authorizer.group('everynode.io').resource('daemonsetrollouts').namespace(request.namespace)" +
			".check('update').allowed()",
		Message: "a wave of the DaemonSet's policy waits for approval, so you need the right to write daemonsetrollouts to " +
			"take it out of that policy",
		Reason: ptr.To(metav1.StatusReasonForbidden),
	}}
	return []*admission.ValidatingAdmissionPolicy{made, changed, left}
}

func policy(o Options, name string, on admission.OperationType) *admission.ValidatingAdmissionPolicy {
	return &admission.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admission.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admission.Fail),
			MatchConstraints: &admission.MatchResources{
				MatchPolicy: ptr.To(admission.Equivalent), NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector: &metav1.LabelSelector{},
				ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
					Operations: []admission.OperationType{on},
					Rule: admission.Rule{
						APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"daemonsets"},
						Scope: ptr.To(admission.NamespacedScope),
					},
				}}},
			},
			MatchConditions: []admission.MatchCondition{
				{Name: "not-everynode-itself", Expression: fmt.Sprintf("request.userInfo.username != %q", o.Account)},
			},
		},
	}
}

// Bindings put the net's policies into force.
func Bindings(o Options) []*admission.ValidatingAdmissionPolicyBinding {
	var out []*admission.ValidatingAdmissionPolicyBinding
	for _, p := range Net(o) {
		b := &admission.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name},
			Spec: admission.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: p.Name, ValidationActions: []admission.ValidationAction{admission.Deny},
			},
		}
		if p.Spec.ParamKind != nil {
			b.Spec.ParamRef = &admission.ParamRef{
				Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: ptr.To(admission.AllowAction),
			}
		}
		out = append(out, b)
	}
	return out
}
