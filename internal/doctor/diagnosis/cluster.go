package diagnosis

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Cluster is what was seen of a cluster.
type Cluster struct {
	// Now is this machine's time; ServerNow is the API server's at that moment.
	Now, ServerNow time.Time
	// Server is how the API is reached. Unreachable is why it does not answer; then nothing
	// else is known. Unready are the parts of it that say that they are not well.
	Server, Unreachable string
	Unready             []string
	// Version is the API server's, such as v1.37.2.
	Version string
	// Program begins the commands that are recommended: everynode, or kubectl everynode.
	// Kubectl is how kubectl is called.
	Program, Kubectl string

	Nodes      []*corev1.Node
	Leases     map[string]*coordinationv1.Lease // by node
	DaemonSets []*appsv1.DaemonSet
	Rollouts   []*v1alpha1.DaemonSetRollout
	Policies   []*v1alpha1.RolloutPolicy
	Startups   []*v1alpha1.NodeStartup
	Variants   []*v1alpha1.DaemonSetVariant
	// StartupsUnread tells that NodeStartups could not be read.
	StartupsUnread bool
	// Held are pods that do not start yet, on nodes whose machine has started again.
	Held []*corev1.Pod
	// Gated are pods that wait behind the gate of those that may ask a registry what their images are.
	Gated []*corev1.Pod
	// GatesOfOthers are events that tell that somebody else puts pods there.
	GatesOfOthers []*corev1.Event
	Webhooks      []Webhook
	// StartupPolicies are those by which the API server closes nodes itself.
	StartupPolicies []StartupPolicy
	// ServiceCIDRs are where Services have addresses from, and Addresses those that are given out.
	ServiceCIDRs []*networkingv1.ServiceCIDR
	Addresses    []netip.Addr
	// Extensions are API servers of others, and what is wrong with them.
	Extensions []Extension
	// Members are the servers; fewer than two tell nothing.
	Members []Member
	// Lacking are fields of Everynode's kinds that the API does not have, such as "RolloutPolicy spec.content".
	Lacking []string
	// Hidden are the kinds that may not be read.
	Hidden []string
}

// Webhook is one that the API asks about changes.
type Webhook struct {
	// Resource is the kind of its configuration, such as validatingwebhookconfigurations.
	Resource, Configuration, Name string
	// Demanding tells that what it is asked about is refused while it does not answer.
	Demanding bool
	// Service is namespace/name of where it is; empty if it is at a URL. Missing tells that
	// there is no such Service, Ready how many endpoints of it are ready.
	Service string
	Missing bool
	Ready   int
	// AuthorityEnds is the end of the authority of its certificate; zero if none is named.
	AuthorityEnds    time.Time
	AuthorityProblem string
	// Unanswered is how often the API server could not ask it since it started.
	Unanswered int
	// ChangesPods tells that it may change pods that are made, and AskedAgain that it is asked again where another one
	// has changed one after it.
	ChangesPods, AskedAgain bool
}

// Extension is an API server behind the API server.
type Extension struct{ Name, Problem string }

// Member is one of several servers.
type Member struct {
	Name, Version, Problem string
	Learner                bool
	// Behind is how many changes its database does not have yet.
	Behind uint64
	// Differs says that its database holds something else than those of others; empty if that is not known.
	Differs string
}

// OfCluster says what is wrong with a cluster, problems first.
func OfCluster(c Cluster) []Finding {
	if c.Unreachable != "" {
		f := findings{check: "api"}
		f.add(Problem, c.Server, "everynode doctor    # on the machine of the server", "the API does not answer: %s",
			c.Unreachable)
		return f.all
	}
	var all []Finding
	for _, check := range []struct {
		name string
		look func(*findings, *Cluster)
	}{
		{"api", answers}, {"members", serversOf}, {"clock", clocks}, {"versions", nodeVersions}, {"nodes", nodes},
		{"daemons", daemons}, {"rollouts", rollouts}, {"fetch", fetches}, {"services", services},
		{"webhooks", webhooks}, {"beside", besides}, {"startups", startups}, {"variants", variants},
		{"definitions", outdated}, {"fields", strange}, {"gates", gated},
	} {
		f := findings{check: check.name}
		check.look(&f, &c)
		all = append(all, f.all...)
	}
	return inOrder(all)
}

func answers(f *findings, c *Cluster) {
	for _, part := range c.Unready {
		f.add(Problem, c.Server, c.Kubectl+" get --raw '/readyz?verbose'",
			"the API server says that it is not ready: %s", part)
	}
	for _, kind := range c.Hidden {
		f.add(Warning, kind, c.Kubectl+" auth whoami", "%s may not be read by you, so nothing is said about them", kind)
	}
	for _, e := range c.Extensions {
		f.add(Problem, "apiservice/"+e.Name, c.Kubectl+" describe apiservice "+e.Name,
			"the aggregated API server for %s does not answer: %s", e.Name, e.Problem)
	}
}

// farBehind is how many changes a server may be behind the others.
const farBehind = 10000

func serversOf(f *findings, c *Cluster) {
	if len(c.Members) < 2 {
		return
	}
	voters, silent := 0, 0
	for _, m := range c.Members {
		if !m.Learner {
			voters++
		}
		subject := "server/" + m.Name
		switch {
		case m.Problem != "":
			if !m.Learner {
				silent++
			}
			f.add(Problem, subject, "everynode members remove "+m.Name+"    # if it is lost; else start it",
				"the server does not answer: %s", m.Problem)
		case m.Differs != "":
			f.add(Problem, subject, "everynode members    # docs/operations.md, A database is corrupt",
				"its database differs from those of other servers (%s)", m.Differs)
		case m.Behind > farBehind:
			f.add(Warning, subject, "everynode members", "its database is %d changes behind", m.Behind)
		}
	}
	if spare := (voters - 1) / 2; silent > spare {
		f.add(Problem, "servers", "everynode members",
			"%d of %d servers do not answer, and %d are needed: nothing can be changed", silent, voters, voters/2+1)
	}
	if voters%2 == 0 {
		f.add(Warning, "servers", "everynode server --help    # --join",
			"%d servers survive no more losses than %d do; add one, or remove one", voters, voters-1)
	}
}

// How much the time of two machines may differ. Nodes renew their leases every ten seconds.
const (
	clockOff  = 2 * time.Second
	clockWild = 30 * time.Second
	// A node that did not renew its lease for so long is not ready any more.
	clockBehind = 2 * time.Minute
)

func clocks(f *findings, c *Cluster) {
	const remedy = "timedatectl set-ntp true"
	if d := c.Now.Sub(c.ServerNow).Abs(); !c.ServerNow.IsZero() && d > clockOff {
		severity := Warning
		if d > clockWild {
			severity = Problem
		}
		f.add(severity, "this machine", remedy,
			"its clock and the API server's differ by %s; certificates and leases depend on them", long(d))
	}
	ahead, behind := clocksOfNodes(c)
	if len(ahead) > 0 {
		f.add(Problem, "nodes", remedy+"    # on each",
			"%s ahead of the API server's: %s; if one dies, that is noticed late",
			many(len(ahead), "the clock of %d node is", "the clocks of %d nodes are"), some(ahead))
	}
	if len(behind) > 0 {
		f.add(Problem, "nodes", remedy+"    # on each",
			"%s behind the API server's: %s; "+
				"their tokens and certificates count for longer than they should, or not yet",
			many(len(behind), "the clock of %d node is", "the clocks of %d nodes are"), some(behind))
	}
}

// clocksOfNodes names the nodes whose leases are not of the API server's time.
func clocksOfNodes(c *Cluster) (ahead, behind []string) {
	if c.ServerNow.IsZero() {
		return nil, nil
	}
	ready := map[string]bool{}
	for _, n := range c.Nodes {
		ready[n.Name] = slices.ContainsFunc(n.Status.Conditions, func(cond corev1.NodeCondition) bool {
			return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
		})
	}
	for name, lease := range c.Leases {
		if lease.Spec.RenewTime == nil {
			continue
		}
		// One that is silent is no longer ready by then, and not this one's fault.
		if ready[name] && c.ServerNow.Sub(lease.Spec.RenewTime.Time) > clockBehind {
			behind = append(behind, name)
		}
		if lease.Spec.RenewTime.Sub(c.ServerNow) > clockWild {
			ahead = append(ahead, name)
		}
	}
	return ahead, behind
}

func nodeVersions(f *findings, c *Cluster) {
	by := map[string][]string{}
	for _, n := range c.Nodes {
		if v := n.Status.NodeInfo.KubeletVersion; v != "" && c.Version != "" && minor(v) != minor(c.Version) {
			by[v] = append(by[v], n.Name)
		}
	}
	for _, version := range sortedKeys(by) {
		names := by[version]
		slices.Sort(names)
		f.add(Warning, "nodes", c.Kubectl+" get nodes -o wide",
			"%s %s, and the API server %s: %s; upgrade servers first, then nodes, and all of them",
			many(len(names), "%d node runs", "%d nodes run"), version, c.Version, some(names))
	}
}

// minor is a version without what comes after its second number.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func nodes(f *findings, c *Cluster) {
	if len(c.Nodes) == 0 {
		f.add(Warning, "nodes", "everynode token create", "there are no nodes; join one with a token")
		return
	}
	short := map[corev1.NodeConditionType][]string{}
	groups := map[string][]string{} // nodes that are not ready, by what they say
	since := map[string]time.Time{}
	var cordoned []string
	for _, n := range c.Nodes {
		if n.Spec.Unschedulable {
			cordoned = append(cordoned, n.Name)
		}
		for _, cond := range n.Status.Conditions {
			switch cond.Type {
			case corev1.NodeReady:
				if cond.Status == corev1.ConditionTrue {
					continue
				}
				key := "silent"
				if cond.Status == corev1.ConditionFalse {
					key = cond.Message
				}
				groups[key] = append(groups[key], n.Name)
				if first, known := since[key]; !known || cond.LastTransitionTime.Time.Before(first) {
					since[key] = cond.LastTransitionTime.Time
				}
			case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
				if cond.Status == corev1.ConditionTrue {
					short[cond.Type] = append(short[cond.Type], n.Name)
				}
			}
		}
	}
	notReady(f, c, groups, since)
	maintained(f, c)
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		if names := short[kind]; len(names) > 0 {
			slices.Sort(names)
			f.add(Warning, nodeSubject(names), c.Kubectl+" describe node "+names[0],
				"%s short of %s: no new pods go there, or some are evicted: %s",
				many(len(names), "%d node is", "%d nodes are"), shortOf[kind], some(names))
		}
	}
	if len(cordoned) > 0 {
		first := strings.Join(cordoned[:min(3, len(cordoned))], " ")
		f.add(Warning, nodeSubject(cordoned), c.Kubectl+" uncordon "+first,
			"%s no new pods, because somebody cordoned them: %s",
			many(len(cordoned), "%d node takes", "%d nodes take"), some(cordoned))
	}
}

// mostWays is how many ways of not being ready are told one by one: what a node says may
// be other words on each.
const mostWays = 10

// notReady tells of nodes that are not, by what they say; the most frequent first.
func notReady(f *findings, c *Cluster, groups map[string][]string, since map[string]time.Time) {
	ways := sortedKeys(groups)
	slices.SortStableFunc(ways, func(a, b string) int { return cmp.Compare(len(groups[b]), len(groups[a])) })
	if len(ways) > mostWays {
		const others = "other things"
		for _, key := range ways[mostWays-1:] {
			if first := since[others]; first.IsZero() || since[key].Before(first) {
				since[others] = since[key]
			}
			groups[others] = append(groups[others], groups[key]...)
		}
		ways = append(ways[:mostWays-1], others)
	}
	for _, key := range ways {
		names := groups[key]
		slices.Sort(names)
		how := many(len(names), "%d node says that it is not ready: ", "%d nodes say that they are not ready: ") + key
		if key == "silent" {
			how = many(len(names), "%d node is silent", "%d nodes are silent")
		}
		remedy := "systemctl status everynode-agent    # on " + names[0] + "; " + c.Program + " why " + names[0]
		f.add(Problem, nodeSubject(names), remedy, "%s, the first for %s: %s",
			how, long(c.Now.Sub(since[key])), some(names))
	}
}

var shortOf = map[corev1.NodeConditionType]string{
	corev1.NodeMemoryPressure: "memory", corev1.NodeDiskPressure: "disk", corev1.NodePIDPressure: "process numbers",
}

func nodeSubject(names []string) string {
	if len(names) == 1 {
		return "node/" + names[0]
	}
	return "nodes"
}

// stands is how long something may take that is usually quick.
const stands = 10 * time.Minute

func daemons(f *findings, c *Cluster) {
	var unseen []string
	for _, d := range c.DaemonSets {
		name := d.Namespace + "/" + d.Name
		s := &d.Status
		switch {
		case s.ObservedGeneration < d.Generation:
			if changed := lastChange(d); c.Now.Sub(changed) > time.Minute {
				unseen = append(unseen, name)
			}
		case s.NumberUnavailable > 0:
			f.add(Warning, "daemonset/"+name, fmt.Sprintf("%s why daemonset/%s -n %s", c.Program, d.Name, d.Namespace),
				"%d of %d nodes have no available daemon", s.NumberUnavailable, s.DesiredNumberScheduled)
		case s.NumberMisscheduled > 0:
			f.add(Warning, "daemonset/"+name, fmt.Sprintf("%s why daemonset/%s -n %s", c.Program, d.Name, d.Namespace),
				"%s a daemon and should not", many(int(s.NumberMisscheduled), "%d node has", "%d nodes have"))
		}
	}
	if len(unseen) > 0 {
		f.add(Problem, "daemonset controller", c.Kubectl+" -n kube-system get leases",
			"no controller has seen the latest change of %s; does one run?", some(unseen))
	}
}

// lastChange is when somebody last wrote the spec, as far as that is told.
func lastChange(d *appsv1.DaemonSet) time.Time {
	last := d.CreationTimestamp.Time
	for _, m := range d.ManagedFields {
		if m.Subresource == "" && m.Time != nil && m.Time.After(last) {
			last = m.Time.Time
		}
	}
	return last
}

func rollouts(f *findings, c *Cluster) {
	for _, r := range c.Rollouts {
		subject := "daemonset/" + r.Namespace + "/" + r.Name
		target := "daemonset/" + r.Name + " -n " + r.Namespace
		show := c.Program + " rollout status " + target
		switch r.Status.Phase {
		case v1alpha1.PhaseHalted, v1alpha1.PhaseRolledBack:
			f.add(Problem, subject, c.Program+" why "+target+" --verdict FailedRevision",
				"its change has failed (%s): %s", r.Status.Phase, r.Status.Message)
		case v1alpha1.PhaseWaitingForApproval:
			remedy := c.Program + " rollout approve " + target
			if showsNothing(&r.Status) {
				remedy = c.Program + " why " + target
			}
			f.add(Warning, subject, remedy, "its change waits for approval: %s", r.Status.Message)
		case v1alpha1.PhasePaused:
			remedy := show // nobody paused it, so nobody can resume it
			if r.Spec.Paused {
				remedy = c.Program + " rollout resume " + target
			}
			f.add(Warning, subject, remedy, "its change is paused: %s", r.Status.Message)
		case v1alpha1.PhaseProgressing:
			if t := r.Status.StepStarted; t != nil && c.Now.Sub(t.Time) > stands && r.Status.Counts["Changing"] == 0 {
				f.add(Warning, subject, show, "its change is in the step %s for %s, and no node is being changed: %s",
					r.Status.Step, long(c.Now.Sub(t.Time)), r.Status.Message)
			}
		}
	}
}

// showsNothing reports whether the revision works on no node of the step under way: somebody should look before he
// approves it.
func showsNothing(s *v1alpha1.DaemonSetRolloutStatus) bool {
	return slices.ContainsFunc(s.Steps, func(step v1alpha1.StepStatus) bool {
		return step.Name == s.Step && step.Nodes > 0 && step.Done == 0
	})
}

func webhooks(f *findings, c *Cluster) {
	for _, w := range c.Webhooks {
		subject := w.Resource + "/" + w.Configuration
		severity, effect := Warning, "it is left out"
		if w.Demanding {
			severity, effect = Problem, "what it is asked about is refused"
		}
		switch service, namespace := after(w.Service), before(w.Service); {
		case w.Service == "":
		case w.Missing:
			f.add(severity, subject, c.Kubectl+" delete "+w.Resource+" "+w.Configuration+"    # if its package is gone",
				"the webhook %s is to be asked at the Service %s, which does not exist; %s", w.Name, w.Service, effect)
		case w.Ready == 0:
			remedy := fmt.Sprintf("%s -n %s get pods,endpointslices -l kubernetes.io/service-name=%s",
				c.Kubectl, namespace, service)
			f.add(severity, subject, remedy,
				"the webhook %s has nobody to answer: no endpoint of the Service %s is ready; %s",
				w.Name, w.Service, effect)
		}
		if w.Unanswered > 0 {
			f.add(Warning, subject, c.Kubectl+" get events -A; "+c.Kubectl+" get --raw /metrics | grep "+w.Name,
				"the webhook %s could not be asked %s since the API server started; %s then",
				w.Name, many(w.Unanswered, "%d time", "%d times"), effect)
		}
		edit := c.Kubectl + " edit " + w.Resource + " " + w.Configuration
		switch left := w.AuthorityEnds.Sub(c.Now); {
		case w.AuthorityProblem != "":
			f.add(severity, subject, edit, "the caBundle of the webhook %s cannot be read: %s; %s",
				w.Name, w.AuthorityProblem, effect)
		case w.AuthorityEnds.IsZero():
		case left <= 0:
			f.add(severity, subject, edit, "the authority in the caBundle of the webhook %s ended %s ago; %s", w.Name,
				long(-left), effect)
		case left < endsSoon:
			f.add(Warning, subject, edit, "the authority in the caBundle of the webhook %s ends in %s",
				w.Name, long(left))
		}
	}
}

func before(path string) string { name, _, _ := strings.Cut(path, "/"); return name }

func after(path string) string { _, name, _ := strings.Cut(path, "/"); return name }
