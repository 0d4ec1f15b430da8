package diagnosis

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/change/fetch"
)

func TestAgentsThatDoNotFetch(t *testing.T) {
	const (
		all    = "waves: [{name: all, nodes: {}, fetch: true}]\nwindows: [{from: \"09:00\", to: \"16:00\", timeZone: Mars/North}]"
		remedy = " | kubectl get nodes -L everynode.io/fetch-images    # upgrade the agents of those without"
	)
	able := func(c *Cluster, names ...int) {
		for _, i := range names {
			c.Nodes[i].Labels = map[string]string{fetch.Name: "true"}
		}
	}
	policy := func(name, spec string) *v1alpha1.RolloutPolicy {
		p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
		if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, test := range map[string]struct {
		policies map[string]string
		edit     func(*Cluster)
		want     []string
	}{
		"all can":   {map[string]string{"p": all}, func(c *Cluster) { able(c, 0, 1) }, nil},
		"no policy": {nil, func(*Cluster) {}, nil},
		"one does not": {map[string]string{"p": all}, func(c *Cluster) { able(c, 0) },
			[]string{"Warning fetch rolloutpolicy/n/p: a wave of it asks for fetch, and the agent of 1 node does not do that: b; each " +
				"change waits for them until fetchDeadline" + remedy}},
		"two do not, of two DaemonSets": {map[string]string{"p": all}, func(c *Cluster) {
			c.DaemonSets = append(c.DaemonSets, c.DaemonSets[0].DeepCopy())
			c.DaemonSets[1].Name = "e"
		}, []string{"Warning fetch rolloutpolicy/n/p: *the agents of 2 nodes do not do that: a, b; *"}},
		"nobody is to":           {map[string]string{"p": "waves: [{name: all, nodes: {}}]"}, func(*Cluster) {}, nil},
		"it cannot be followed":  {map[string]string{"p": "waves: [{name: all, fetch: true, count: -1}]"}, func(*Cluster) {}, nil},
		"an older policy counts": {map[string]string{"a": "{}", "p": all}, func(*Cluster) {}, nil},
		"only those of its wave": {map[string]string{"p": "waves: [{name: first, nodes: {matchLabels: {old: \"yes\"}}}, {name: all, nodes: {}, fetch: true}]"},
			func(c *Cluster) { c.Nodes[0].Labels = map[string]string{"old": "yes"} }, []string{"Warning fetch*1 node does not do that: b;*"}},
		"only those with a daemon": {map[string]string{"p": all}, func(c *Cluster) {
			c.DaemonSets[0].Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			c.Nodes[0].Labels = map[string]string{"disk": "ssd"}
		}, []string{"Warning fetch*1 node does not do that: a;*"}},
		"it selects no DaemonSet": {map[string]string{"p": all}, func(c *Cluster) { c.DaemonSets[0].Namespace = "other" }, nil},
		"nobody asks": {map[string]string{"p": all}, func(c *Cluster) {
			able(c, 0, 1)
			c.Rollouts[0].Status.Fetch = &v1alpha1.FetchStatus{Message: v1alpha1.NoFetch}
		}, []string{"Warning fetch rolloutpolicy/n/p: a wave of it asks for fetch, and nodes fetch no images before their turn*" +
			"| kubectl edit rolloutpolicy p -n n"}},
		"beside another controller": {map[string]string{"p": all}, func(c *Cluster) {
			c.DaemonSets[0].Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
			c.Webhooks[0].Configuration = registration.Name
		}, []string{"Warning fetch*nodes fetch no images before their turn*"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := wellCluster()
			for _, p := range []string{"a", "p"} {
				if spec := test.policies[p]; spec != "" {
					c.Policies = append(c.Policies, policy(p, spec))
				}
			}
			test.edit(&c)
			found(t, OfCluster(c), test.want...)
		})
	}
}
