package registration

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

func options(fail bool, url string) Options {
	return Options{Namespace: "kube-system", Service: "everynode-webhook", URL: url, Trusted: []byte("ca"), Fail: fail,
		Maker: "system:serviceaccount:kube-system:daemon-set-controller", Account: "system:serviceaccount:kube-system:us"}
}

// TestWebhooksHoldNobodyUp: only pods of the DaemonSet controller wait for us, shortly, and for nothing that we store.
func TestWebhooksHoldNobodyUp(t *testing.T) {
	for _, fail := range []bool{false, true} {
		c := Webhooks(options(fail, ""))
		if c.Name > "001" || len(c.Webhooks) != map[bool]int{false: 4, true: 6}[fail] {
			t.Fatalf("%s has %d webhooks, and must be asked before others", c.Name, len(c.Webhooks))
		}
		for _, w := range c.Webhooks {
			if *w.TimeoutSeconds > 3 || *w.SideEffects != admission.SideEffectClassNone {
				t.Errorf("%s may take %d s, side effects are %s", w.Name, *w.TimeoutSeconds, *w.SideEffects)
			}
			host := strings.HasPrefix(w.Name, "host-")
			if (*w.FailurePolicy == admission.Fail) != (fail && !host && w.Name != OthersWebhook || w.Name == PlacementWebhook) {
				t.Errorf("%s: %s", w.Name, *w.FailurePolicy)
			}
			if s := w.ClientConfig.Service; s == nil || s.Namespace != "kube-system" || *s.Port != 443 || w.ClientConfig.URL != nil {
				t.Errorf("%s is asked at %+v", w.Name, w.ClientConfig)
			}
		}
		pods := c.Webhooks[0]
		if len(pods.MatchConditions) != map[bool]int{false: 2, true: 3}[fail] || *pods.ReinvocationPolicy != admission.IfNeededReinvocationPolicy {
			t.Errorf("pods are asked about by %v, %s", pods.MatchConditions, *pods.ReinvocationPolicy)
		}
		if ops := pods.Rules[0].Operations; !slices.Equal(ops, []admission.OperationType{admission.Create}) {
			t.Errorf("it is asked about %v of pods", ops)
		}
	}
	at := Webhooks(options(false, "https://10.0.0.1:9443")).Webhooks[1].ClientConfig
	if at.Service != nil || *at.URL != "https://10.0.0.1:9443/daemonsets" || string(at.CABundle) != "ca" {
		t.Errorf("by URL it is asked at %+v", at)
	}
}

// TestNetworksComeUpWhileNobodyAnswers: whatever is refused then, what runs in its node's network is not, for the
// webhook's own pods may need it. It is asked about all the same, and about nothing twice.
func TestNetworksComeUpWhileNobodyAnswers(t *testing.T) {
	for _, w := range Webhooks(options(true, "")).Webhooks {
		if w.Name == PlacementWebhook || w.Name == OthersWebhook {
			continue // nodes keep the daemons that they have, and pods of others are never refused
		}
		last := w.MatchConditions[len(w.MatchConditions)-1].Expression
		spec := map[string]string{"pods": "object.spec", "daemonsets": "object.spec.template.spec"}[w.Rules[0].Resources[0]]
		name, isHost := strings.CutPrefix(w.Name, "host-")
		want := spec + ".?hostNetwork.orValue(false) == true"
		if !isHost {
			want = "!(" + want + ")"
		}
		if last != want || name != "pods.everynode.io" && name != SetsWebhook {
			t.Errorf("%s is asked where %s, want %s", w.Name, last, want)
		}
		if (*w.FailurePolicy == admission.Ignore) != isHost {
			t.Errorf("%s: %s", w.Name, *w.FailurePolicy)
		}
	}
}

// TestNodesAreAskedAboutWhileThereAreNodeStartups: no node is ever kept from joining, nor asked about twice.
func TestNodesAreAskedAboutWhileThereAreNodeStartups(t *testing.T) {
	o := options(true, "")
	o.Startups = true
	all := Webhooks(o).Webhooks
	w := all[len(all)-1]
	if len(all) != 7 || w.Name != NodesWebhook || *w.FailurePolicy != admission.Ignore || *w.TimeoutSeconds > 3 {
		t.Fatalf("the last of %d webhooks is %s: %s, %d s", len(all), w.Name, *w.FailurePolicy, *w.TimeoutSeconds)
	}
	r := w.Rules[0]
	if !slices.Equal(r.Operations, []admission.OperationType{admission.Create}) ||
		!slices.Equal(r.Resources, []string{"nodes"}) || *r.Scope != admission.ClusterScope {
		t.Errorf("it is asked about %+v", r)
	}
	if len(w.MatchConditions) != 1 || !strings.Contains(w.MatchConditions[0].Expression, `t.key == "everynode.io/starting"`) {
		t.Errorf("it is asked about nodes by %v", w.MatchConditions)
	}
	if *all[0].FailurePolicy != admission.Fail {
		t.Errorf("pods are asked about with %s", *all[0].FailurePolicy)
	}
}

// TestPodsOfOtherAccountsAreNoticed: a pod of a DaemonSet is asked about by one webhook, whoever makes it.
func TestPodsOfOtherAccountsAreNoticed(t *testing.T) {
	o := options(true, "")
	all := Webhooks(o).Webhooks
	w := all[len(all)-1]
	if w.Name != OthersWebhook || *w.FailurePolicy != admission.Ignore || *w.ClientConfig.Service.Path != PodsPath {
		t.Fatalf("the last webhook is %s, %s", w.Name, *w.FailurePolicy)
	}
	others, own := w.MatchConditions, all[0].MatchConditions
	if others[0].Expression != strings.Replace(own[0].Expression, "==", "!=", 1) || others[1] != own[1] {
		t.Errorf("it is asked where %v, and the other one where %v", others, own)
	}
}

// TestAccountsAreQuoted: an account's name cannot end the text that it stands in.
func TestAccountsAreQuoted(t *testing.T) {
	o := options(false, "")
	o.Maker, o.Account = `a" || true || "`, `b" || true || "ü`
	got := Webhooks(o).Webhooks[0].MatchConditions[0].Expression
	if got != `request.userInfo.username == "a\" || true || \""` {
		t.Errorf("the maker stands in %s", got)
	}
	for _, p := range Net(o) {
		got = p.Spec.MatchConditions[0].Expression
		if got != `request.userInfo.username != "b\" || true || \"ü"` {
			t.Errorf("our account stands in %s", got)
		}
	}
}

// TestTheNetSaysWhatToDo: a refusal of the net, and that it is bound with its policies as parameters.
func TestTheNetSaysWhatToDo(t *testing.T) {
	net, bindings := Net(options(false, "")), Bindings(options(false, ""))
	if len(net) != len(bindings) {
		t.Fatalf("%d policies have %d bindings", len(net), len(bindings))
	}
	for i, p := range net {
		v := p.Spec.Validations[0]
		says := v.Message + v.MessageExpression
		if !strings.Contains(says, "everynode controller --leave") && !strings.Contains(says, "the right to write daemonsetrollouts") {
			t.Errorf("%s says %q", p.Name, says)
		}
		if *p.Spec.FailurePolicy != admission.Fail || bindings[i].Spec.PolicyName != p.Name {
			t.Errorf("%s: %s, bound as %s", p.Name, *p.Spec.FailurePolicy, bindings[i].Spec.PolicyName)
		}
		if (p.Spec.ParamKind == nil) != (bindings[i].Spec.ParamRef == nil) {
			t.Errorf("%s: its binding has parameters: %v", p.Name, bindings[i].Spec.ParamRef)
		}
	}
}

// TestRightsAreForWhatIsRegistered: who runs us may change the objects that are made here, and no others.
func TestRightsAreForWhatIsRegistered(t *testing.T) {
	raw, err := os.ReadFile("../../../examples/beside-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"mutatingwebhookconfigurations": {Name},
		"mutatingadmissionpolicies": {StartupPolicyName}, "mutatingadmissionpolicybindings": {StartupPolicyName}}
	for _, p := range Net(Options{}) {
		want["validatingadmissionpolicies"] = append(want["validatingadmissionpolicies"], p.Name)
	}
	want["validatingadmissionpolicybindings"] = want["validatingadmissionpolicies"]
	seen := 0
	for _, text := range strings.Split(string(raw), "\n---\n") {
		var role rbacv1.ClusterRole
		err = yaml.Unmarshal([]byte(text), &role)
		if err != nil || role.Kind != "ClusterRole" {
			continue
		}
		for _, r := range role.Rules {
			changes := !slices.Equal(r.Verbs, []string{"create"}) && !slices.Equal(r.Verbs, []string{"list"})
			if !slices.Contains(r.APIGroups, "admissionregistration.k8s.io") || !changes {
				continue
			}
			for _, resource := range r.Resources {
				seen++
				if !slices.Equal(r.ResourceNames, want[resource]) {
					out, _ := json.Marshal(r)
					t.Errorf("%s are %v, and the rule is %s", resource, want[resource], out)
				}
			}
		}
	}
	if seen != len(want) {
		t.Errorf("there are rules for %d kinds, want %d", seen, len(want))
	}
}

// TestCopiesMayBeOwned: a copy of content holds its DaemonSet's deletion up, which some API servers let only those say
// who may write that one's finalizers.
func TestCopiesMayBeOwned(t *testing.T) {
	raw, err := os.ReadFile("../../../examples/beside-rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	may := false
	for _, text := range strings.Split(string(raw), "\n---\n") {
		var role rbacv1.ClusterRole
		err = yaml.Unmarshal([]byte(text), &role)
		if err != nil || role.Kind != "ClusterRole" {
			continue
		}
		may = may || slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "daemonsets/finalizers") && slices.Contains(r.Verbs, "update")
		})
	}
	if !may {
		t.Error("copies cannot be made where the API server enforces who owns what")
	}
}
