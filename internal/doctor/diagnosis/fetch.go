package diagnosis

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// fetches looks whether nodes can fetch images before their turn where a policy wants that.
func fetches(f *findings, c *Cluster) {
	byPods := slices.ContainsFunc(c.Rollouts, func(r *v1alpha1.DaemonSetRollout) bool { return r.Status.FetchesByPods() })
	nobody := slices.ContainsFunc(c.Webhooks, func(w Webhook) bool { return w.Configuration == registration.Name }) ||
		slices.ContainsFunc(c.Rollouts, func(r *v1alpha1.DaemonSetRollout) bool { return !r.Status.Fetches() })
	if byPods || !nobody && !slices.ContainsFunc(c.Nodes, cannotFetch) {
		return
	}
	for _, p := range c.Policies {
		policy := fetchingPolicy(p)
		if policy == nil {
			continue
		}
		var unable []string
		covers := false
		for _, ds := range c.DaemonSets {
			if rolloutpolicy.Choose(c.Policies, ds.Namespace, ds.Labels) != p {
				continue
			}
			covers = true
			unable = append(unable, unableToFetch(policy, ds, c.Nodes)...)
		}
		slices.Sort(unable)
		unable = slices.Compact(unable)
		subject := "rolloutpolicy/" + p.Namespace + "/" + p.Name
		switch {
		case nobody && covers:
			f.add(Warning, subject, c.Kubectl+" edit rolloutpolicy "+p.Name+" -n "+p.Namespace,
				"a wave of it asks for fetch, and %s", v1alpha1.NoFetch)
		case len(unable) > 0 && !nobody:
			f.add(Warning, subject, c.Kubectl+" get nodes -L "+fetch.Name+"    # upgrade the agents of those without",
				"a wave of it asks for fetch, and %s not do that: %s; each change waits for them until fetchDeadline",
				many(len(unable), "the agent of %d node does", "the agents of %d nodes do"), some(unable))
		}
	}
}

func cannotFetch(n *corev1.Node) bool { return !fetch.Can(n.Labels) }

// fetchingPolicy is the policy if nodes of some wave are to fetch images; else, or where it cannot be followed, nil.
func fetchingPolicy(p *v1alpha1.RolloutPolicy) *rolloutpolicy.Policy {
	spec := p.Spec
	spec.Windows = nil // they say when, and need to know time zones
	policy, err := rolloutpolicy.Compile(&spec, nil)
	if err != nil || newer.Check(p) != nil || !policy.Fetches() {
		return nil // the rollout says why it cannot be followed
	}
	return policy
}

// unableToFetch names the nodes that are to fetch images for the DaemonSet, and whose agents do not.
func unableToFetch(policy *rolloutpolicy.Policy, ds *appsv1.DaemonSet, all []*corev1.Node) (names []string) {
	rules, fleet := placement.Compile(&ds.Spec.Template.Spec), rolloutpolicy.NewFleet(policy)
	for _, n := range all {
		if fits, _ := rules.Judge(n); fits == placement.ShouldRun {
			fleet.Set(n.Name, n.Labels)
		}
	}
	for _, n := range all {
		if step, in := fleet.Step(n.Name); in && policy.Waves[step.Wave].Fetch && cannotFetch(n) {
			names = append(names, n.Name)
		}
	}
	return names
}
