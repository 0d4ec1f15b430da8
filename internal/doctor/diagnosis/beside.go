package diagnosis

import (
	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// besides looks at Everynode beside another DaemonSet controller.
func besides(f *findings, c *Cluster) {
	on := false
	for _, w := range c.Webhooks {
		on = on || w.Configuration == registration.Name
	}
	if on {
		oldKubernetes(f, c)
	}
	for _, ds := range c.DaemonSets {
		subject := "daemonset/" + ds.Name + " in " + ds.Namespace
		waits := ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
		selected := rolloutpolicy.Choose(c.Policies, ds.Namespace, ds.Labels) != nil
		show := c.Kubectl + " describe daemonset " + ds.Name + " -n " + ds.Namespace
		switch taken := admit.Taken(ds); {
		case taken && !waits:
			f.add(Problem, subject, show,
				"it is kept for a RolloutPolicy, and stored with %s: all its pods may be replaced at once",
				ds.Spec.UpdateStrategy.Type)
		case taken && !on:
			f.add(Problem, subject, "everynode controller --leave    # or start the controllers again",
				"it was taken over for a RolloutPolicy, and no webhook of Everynode is registered: nobody leads its changes")
		case on && selected && !taken && !waits:
			f.add(Problem, subject, show+"    # the event StoredAsBefore says more",
				"a RolloutPolicy selects it, and it is not taken over: its pods are replaced without the policy; "+
					"the API server may not reach the webhook, or exempt the namespace %s", ds.Namespace)
		}
	}
}

// oldKubernetes looks at the API server's version.
func oldKubernetes(f *findings, c *Cluster) {
	old, err := registration.TooOld(c.Version)
	switch {
	case err != nil:
		f.add(Warning, c.Server, c.Kubectl+" version", "its version %q cannot be read", c.Version)
	case old:
		f.add(Problem, c.Server, "everynode controller --leave",
			"the API is of version %s; beside its DaemonSet controller Everynode needs %s or newer", c.Version,
			registration.Oldest)
	}
}
