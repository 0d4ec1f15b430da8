package diagnosis

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
)

// TestAPolicyThatClosesNodes is told of where nobody opens them, and where it does nothing, or something else than the
// one of this program.
func TestAPolicyThatClosesNodes(t *testing.T) {
	startup := func(gate v1alpha1.StartupGate, tolerate metav1.ConditionStatus) []*v1alpha1.NodeStartup {
		s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
		s.Spec.Gate = gate
		s.Status.Conditions = []metav1.Condition{{Type: plan.Ordered, Status: metav1.ConditionTrue},
			{Type: plan.DaemonSetsTolerate, Status: tolerate, Message: "it does not"}}
		return []*v1alpha1.NodeStartup{s}
	}
	webhook := func(service string, ready int) []Webhook {
		return []Webhook{{Configuration: registration.Name, Name: registration.NodesWebhook, Service: service, Ready: ready}}
	}
	policy, binding := registration.StartupPolicy()
	is := func(version string) []StartupPolicy {
		return []StartupPolicy{{Version: version, Name: policy.Name, Policy: policy.DeepCopy(), Binding: binding.DeepCopy()}}
	}
	whole, other, named, renamed := is("v1beta1"), is("v1"), is("v1"), is("v1")
	other[0].Policy.Spec.MatchConditions[2].Expression = "true"
	renamed[0].Name, renamed[0].Policy.Name, renamed[0].Binding.Spec.PolicyName = "team-a", "team-a", "team-a"
	named[0].Binding.Spec.ParamRef.Name, named[0].Binding.Spec.ParamRef.Selector = "gone", nil
	followed := startup("", metav1.ConditionTrue)
	const (
		closes   = "the policy everynode-startup closes the nodes that join, no controller of Everynode answers"
		unasked  = "no webhook of Everynode is registered for nodes that join, so none is closed"
		differs  = "it is not what this version of Everynode prints"
		followsN = "the NodeStartup that it goes by is gone"
	)
	for name, c := range map[string]struct {
		cluster Cluster
		want    []string
	}{
		"there is none":      {Cluster{Startups: followed, Webhooks: webhook("a/b", 2)}, nil},
		"as it is to be":     {Cluster{Startups: followed, Webhooks: webhook("a/b", 2), StartupPolicies: whole}, nil},
		"a webhook at a URL": {Cluster{Startups: followed, Webhooks: webhook("", 0), StartupPolicies: whole}, nil},
		"nobody answers": {Cluster{Startups: followed, Webhooks: webhook("a/b", 0), StartupPolicies: whole},
			[]string{closes}},
		"somebody has left": {Cluster{Startups: followed, StartupPolicies: whole}, []string{closes}},
		"who left is not known": {Cluster{Startups: followed, StartupPolicies: whole,
			Hidden: []string{"mutatingwebhookconfigurations"}}, nil},
		"left without a gate": {Cluster{Startups: startup(v1alpha1.GateNone, metav1.ConditionFalse), StartupPolicies: whole},
			[]string{closes, "it does not"}},
		"left, and not tolerated": {Cluster{Startups: startup("", metav1.ConditionFalse), StartupPolicies: whole},
			[]string{unasked, "it does not"}},
		"at home":          {Cluster{Startups: []*v1alpha1.NodeStartup{{}}, StartupPolicies: whole}, nil},
		"another print":    {Cluster{Startups: followed, Webhooks: webhook("", 0), StartupPolicies: other}, []string{differs}},
		"its binding only": {Cluster{StartupPolicies: []StartupPolicy{{Binding: binding}}}, []string{"there is its binding alone"}},
		"without binding": {Cluster{Startups: followed, StartupPolicies: []StartupPolicy{{Policy: policy}}},
			[]string{"no binding names it", unasked}},
		"no NodeStartup": {Cluster{StartupPolicies: whole}, []string{followsN}},
		"its own NodeStartup": {Cluster{Startups: followed, Webhooks: webhook("", 0), StartupPolicies: named},
			[]string{differs, followsN}},
		"under another name": {Cluster{Startups: followed, Webhooks: webhook("", 0), StartupPolicies: renamed},
			[]string{"it is what Everynode prints, under another name than everynode-startup"}},
		"two, and nobody answers": {Cluster{Startups: followed, StartupPolicies: append(is("v1"), renamed...)},
			[]string{"it is what Everynode prints, under another name than everynode-startup", closes}},
		"NodeStartups are unread": {Cluster{StartupPolicies: whole, StartupsUnread: true}, nil},
	} {
		f := findings{check: "startups"}
		startups(&f, &c.cluster)
		if len(f.all) != len(c.want) || !slices.EqualFunc(f.all, c.want, func(is Finding, want string) bool {
			return strings.HasPrefix(is.Message, want)
		}) {
			t.Errorf("%s: %+v, want %q", name, f.all, c.want)
		}
	}
}
