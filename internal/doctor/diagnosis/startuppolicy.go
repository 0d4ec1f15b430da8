package diagnosis

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
)

// StartupPolicy is the policy by which an API server of others closes nodes itself, nil where it is not there.
type StartupPolicy struct {
	// Version is that of its group in which it was read.
	Version, Name string

	Policy  *admissionv1.MutatingAdmissionPolicy
	Binding *admissionv1.MutatingAdmissionPolicyBinding
}

// closesFor reports whether the policy closes nodes that a NodeStartup chooses.
func (p *StartupPolicy) closesFor(s *v1alpha1.NodeStartup) bool {
	return p.Policy != nil && p.Binding != nil && (s.Spec.Gate == v1alpha1.GateNone ||
		meta.IsStatusConditionTrue(s.Status.Conditions, plan.DaemonSetsTolerate))
}

// unpolice is the command that has an API server close no nodes by a policy any more.
func (c *Cluster) unpolice(name string) string {
	return c.Kubectl + " delete mutatingadmissionpolicies,mutatingadmissionpolicybindings " + name
}

// policed finds policies that do nothing, or something else than the one of this program.
func policed(f *findings, c *Cluster) {
	for i := range c.StartupPolicies {
		policedBy(f, c, &c.StartupPolicies[i])
	}
}

func policedBy(f *findings, c *Cluster, p *StartupPolicy) {
	subject := "mutatingadmissionpolicy/" + p.Name
	again := "everynode controller --print-startup-policy " + p.Version + " | " + c.Kubectl + " apply -f -"
	if p.Name == registration.StartupPolicyName {
		again += "    # or: " + c.unpolice(p.Name)
	} else {
		again += " && " + c.unpolice(p.Name)
	}
	switch {
	case p.Policy == nil:
		f.add(Warning, subject, again, "there is its binding alone, and it closes no node")
		return
	case p.Binding == nil:
		f.add(Warning, subject, again, "no binding names it, and without one it closes no node")
		return
	case !registration.SameStartupPolicy(p.Policy, p.Binding):
		f.add(Warning, subject, again, "it is not what this version of Everynode prints: it is that of another version, or "+
			"somebody has changed it")
	case p.Name != registration.StartupPolicyName:
		f.add(Warning, subject, again, "it is what Everynode prints, under another name than %s: whoever leaves has to "+
			"delete it first", registration.StartupPolicyName)
	}
	name := ""
	if p.Binding.Spec.ParamRef != nil {
		name = p.Binding.Spec.ParamRef.Name
	}
	follows := func(s *v1alpha1.NodeStartup) bool { return name == "" || s.Name == name }
	if p.Policy.Spec.ParamKind != nil && !c.StartupsUnread && !slices.ContainsFunc(c.Startups, follows) {
		f.add(Warning, subject, c.unpolice(p.Name), "the NodeStartup that it goes by is gone, and it closes no node")
	}
}

// unopened finds a NodeStartup beside another controller whose nodes nobody closes, or the policy does and nobody
// opens.
func unopened(f *findings, c *Cluster, s *v1alpha1.NodeStartup) {
	if !plan.Beside(s) || slices.Contains(c.Hidden, "mutatingwebhookconfigurations") {
		return
	}
	at := slices.IndexFunc(c.Webhooks, func(w Webhook) bool {
		return w.Configuration == registration.Name && w.Name == registration.NodesWebhook
	})
	answers := at >= 0 && (c.Webhooks[at].Service == "" || c.Webhooks[at].Ready > 0)
	by := slices.IndexFunc(c.StartupPolicies, func(p StartupPolicy) bool { return p.closesFor(s) })
	switch {
	case !answers && by >= 0:
		name := c.StartupPolicies[by].Name
		f.add(Problem, "nodestartup/"+s.Name, "everynode controller --beside    # or: "+c.unpolice(name),
			"the policy %s closes the nodes that join, no controller of Everynode answers, and nobody opens them", name)
	case at < 0:
		f.add(Problem, "nodestartup/"+s.Name, "everynode controller --beside    # or delete the NodeStartup",
			"no webhook of Everynode is registered for nodes that join, so none is closed")
	}
}
