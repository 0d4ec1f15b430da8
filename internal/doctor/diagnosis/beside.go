package diagnosis

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// besides looks at Everynode beside another DaemonSet controller.
func besides(f *findings, c *Cluster) {
	on := false
	for _, w := range c.Webhooks {
		on = on || w.Configuration == registration.Name
	}
	if on {
		oldKubernetes(f, c)
		injectors(f, c)
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
		hindered(f, ds, subject, show, selected)
	}
}

// hindered says what keeps a DaemonSet's change from going on, and who else leads it.
func hindered(f *findings, ds *appsv1.DaemonSet, subject, show string, selected bool) {
	for _, cond := range ds.Status.Conditions {
		if cond.Type == v1alpha1.RolloutReconciling && cond.Reason == admit.NotAsked {
			f.add(Problem, subject, show, "its change stands still, and pods that are lost come back with the newest "+
				"template: %s", cond.Message)
		}
	}
	if tool := otherTool(ds); tool != "" && selected {
		f.add(Problem, subject, show, "a RolloutPolicy selects it, and %s is at work on it: each would undo what the other "+
			"does; take it out of one of them", tool)
	}
}

// otherTools are tools that lead changes of DaemonSets, by what their labels, annotations and selectors of nodes begin
// with.
var otherTools = []struct{ prefix, name string }{
	{"rollouts.kruise.io/", "OpenKruise Rollouts"}, {"apps.kruise.io/", "OpenKruise"}, {"flagger.app/", "Flagger"},
}

// otherTool is another tool that leads changes of the DaemonSet; "" if none shows.
func otherTool(ds *appsv1.DaemonSet) string {
	for _, on := range []map[string]string{
		ds.Labels, ds.Annotations, ds.Spec.Template.Labels, ds.Spec.Template.Annotations, ds.Spec.Template.Spec.NodeSelector,
	} {
		for key := range on {
			for _, t := range otherTools {
				if strings.HasPrefix(key, t.prefix) {
					return t.name
				}
			}
		}
	}
	return ""
}

// injectors are webhooks whose additions to a pod are lost where it gets another revision: those that are asked before
// us, and never again.
func injectors(f *findings, c *Cluster) {
	for _, w := range c.Webhooks {
		if w.ChangesPods && !w.AskedAgain && w.Configuration < registration.Name {
			f.add(Warning, w.Resource+"/"+w.Configuration, c.Kubectl+" edit "+w.Resource+" "+w.Configuration+
				"    # set reinvocationPolicy: IfNeeded",
				"the webhook %s is asked about new pods before Everynode, and not again: what it adds is taken off a pod that "+
					"gets the revision of before; have it be asked again, or behind %s by its name", w.Name, registration.Name)
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
