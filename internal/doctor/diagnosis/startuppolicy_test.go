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
	whole := StartupPolicy{Version: "v1beta1", Policy: policy, Binding: binding}
	other := StartupPolicy{Version: "v1", Policy: policy.DeepCopy(), Binding: binding}
	other.Policy.Spec.MatchConditions[2].Expression = "true"
	named := StartupPolicy{Version: "v1", Policy: policy, Binding: binding.DeepCopy()}
	named.Binding.Spec.ParamRef.Name, named.Binding.Spec.ParamRef.Selector = "gone", nil
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
		"as it is to be":     {Cluster{Startups: followed, Webhooks: webhook("a/b", 2), StartupPolicy: whole}, nil},
		"a webhook at a URL": {Cluster{Startups: followed, Webhooks: webhook("", 0), StartupPolicy: whole}, nil},
		"nobody answers": {Cluster{Startups: followed, Webhooks: webhook("a/b", 0), StartupPolicy: whole},
			[]string{closes}},
		"somebody has left": {Cluster{Startups: followed, StartupPolicy: whole}, []string{closes}},
		"who left is not known": {Cluster{Startups: followed, StartupPolicy: whole,
			Hidden: []string{"mutatingwebhookconfigurations"}}, nil},
		"left without a gate": {Cluster{Startups: startup(v1alpha1.GateNone, metav1.ConditionFalse), StartupPolicy: whole},
			[]string{closes, "it does not"}},
		"left, and not tolerated": {Cluster{Startups: startup("", metav1.ConditionFalse), StartupPolicy: whole},
			[]string{unasked, "it does not"}},
		"at home":          {Cluster{Startups: []*v1alpha1.NodeStartup{{}}, StartupPolicy: whole}, nil},
		"another print":    {Cluster{Startups: followed, Webhooks: webhook("", 0), StartupPolicy: other}, []string{differs}},
		"its binding only": {Cluster{StartupPolicy: StartupPolicy{Binding: binding}}, []string{"there is its binding alone"}},
		"without binding": {Cluster{Startups: followed, StartupPolicy: StartupPolicy{Policy: policy}},
			[]string{"no binding names it", unasked}},
		"no NodeStartup": {Cluster{StartupPolicy: whole}, []string{followsN}},
		"its own NodeStartup": {Cluster{Startups: followed, Webhooks: webhook("", 0), StartupPolicy: named},
			[]string{differs, followsN}},
		"NodeStartups are unread": {Cluster{StartupPolicy: whole, StartupsUnread: true}, nil},
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
