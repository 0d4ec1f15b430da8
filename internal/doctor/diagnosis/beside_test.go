package diagnosis

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/registration"
)

// TestBesideAnotherController: what is wrong with the mode, and that a cluster without it hears nothing of it.
func TestBesideAnotherController(t *testing.T) {
	set := func(strategy appsv1.DaemonSetUpdateStrategyType, taken bool) *appsv1.DaemonSet {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent",
			Labels: map[string]string{"tier": "agent"}}}
		ds.Spec.UpdateStrategy.Type = strategy
		if taken {
			ds.Annotations = map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}
		}
		return ds
	}
	const rolling, waits = appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agents"},
		Spec: v1alpha1.RolloutPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "agent"}}}}
	other := policy.DeepCopy()
	other.Spec.Selector.MatchLabels["tier"] = "other"
	stuck, kruise, free := set(waits, true), set(waits, true), set(rolling, false)
	stuck.Status.Conditions = []appsv1.DaemonSetCondition{{Type: v1alpha1.RolloutReconciling, Reason: admit.NotAsked, Message: "nobody is asked"}}
	kruise.Annotations["rollouts.kruise.io/in-progressing"] = "{}"
	free.Spec.Template.Spec.NodeSelector = map[string]string{"flagger.app/scale-to-zero": "true"}
	flagger := set(waits, true)
	flagger.Spec.Template.Spec.NodeSelector = free.Spec.Template.Spec.NodeSelector
	hook := Webhook{Configuration: registration.Name}
	for name, c := range map[string]struct {
		set     *appsv1.DaemonSet
		policy  *v1alpha1.RolloutPolicy
		on      bool
		version string
		want    []string
	}{
		"well":              {set(waits, true), policy, true, "v1.33.0", nil},
		"of a distribution": {set(waits, true), policy, true, "v1.34.1-eks-123+abc", nil},
		"no mode":           {set(rolling, false), policy, false, "v1.20.0", nil},
		"not selected":      {set(rolling, false), other, true, "v1.36.3", nil},
		"an author's own":   {set(waits, false), policy, true, "v1.36.3", nil},
		"too old":           {set(waits, true), policy, true, "v1.32.9", []string{"Problem beside api: *1.32.9*needs 1.33*| everynode controller --leave"}},
		"no version":        {set(waits, true), policy, true, "?", []string{"Warning beside api: its version*"}},
		"not OnDelete":      {set(rolling, true), policy, true, "v1.36.3", []string{"Problem beside daemonset/agent in kube-system: *stored with RollingUpdate*"}},
		"left behind":       {set(waits, true), policy, false, "v1.36.3", []string{"Problem beside daemonset/agent in kube-system: *no webhook of Everynode is registered*"}},
		"nobody is asked":   {stuck, policy, true, "v1.36.3", []string{"Problem beside daemonset/agent in kube-system: *stands still*nobody is asked*"}},
		"OpenKruise":        {kruise, policy, true, "v1.36.3", []string{"Problem beside daemonset/agent in kube-system: *OpenKruise Rollouts is at work*"}},
		"Flagger":           {flagger, policy, true, "v1.36.3", []string{"Problem beside daemonset/agent in kube-system: *Flagger is at work*"}},
		"Flagger alone":     {free, other, true, "v1.36.3", nil},
		"an exempt namespace": {set(rolling, false), policy, true, "v1.36.3",
			[]string{"Problem beside daemonset/agent in kube-system: *not taken over*exempt the namespace kube-system*StoredAsBefore*"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := Cluster{Server: "api", Version: c.version, Kubectl: "kubectl", DaemonSets: []*appsv1.DaemonSet{c.set},
				Policies: []*v1alpha1.RolloutPolicy{c.policy}}
			if c.on {
				seen.Webhooks = []Webhook{hook}
			}
			f := findings{check: "beside"}
			besides(&f, &seen)
			found(t, f.all, c.want...)
		})
	}
}

// TestInjectorsBesideAnotherController: what is asked about pods before us, and not again, loses what it adds.
func TestInjectorsBesideAnotherController(t *testing.T) {
	const kind = "mutatingwebhookconfigurations"
	ours := Webhook{Configuration: registration.Name, Resource: kind, ChangesPods: true, AskedAgain: true}
	for name, c := range map[string]struct {
		other Webhook
		alone bool
		want  []string
	}{
		"before us": {Webhook{Name: "a.example.com", Configuration: "000-a", ChangesPods: true}, false,
			[]string{"Warning beside mutatingwebhookconfigurations/000-a: the webhook a.example.com is asked*before Everynode*" +
				"behind 000-everynode*edit mutatingwebhookconfigurations 000-a*"}},
		"before us, and again": {Webhook{Name: "a", Configuration: "000-a", ChangesPods: true, AskedAgain: true}, false, nil},
		"behind us":            {Webhook{Name: "a", Configuration: "istio-sidecar-injector", ChangesPods: true}, false, nil},
		"of other kinds":       {Webhook{Name: "a", Configuration: "000-a"}, false, nil},
		"without us":           {Webhook{Name: "a", Configuration: "000-a", ChangesPods: true}, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c.other.Resource = kind
			seen := Cluster{Server: "api", Version: "v1.36.3", Kubectl: "kubectl", Webhooks: []Webhook{c.other}}
			if !c.alone {
				seen.Webhooks = append(seen.Webhooks, ours)
			}
			f := findings{check: "beside"}
			besides(&f, &seen)
			found(t, f.all, c.want...)
		})
	}
}
