package diagnosis

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// unseenFor is how long nobody may have taken note of a NodeStartup.
const unseenFor = time.Minute

// startups repeats what NodeStartups say is wrong with nodes that start, and finds those that nobody opens.
func startups(f *findings, c *Cluster) {
	known := map[string]bool{}
	policed(f, c)
	for _, s := range c.Startups {
		known[s.Name] = true
		if s.Status.ObservedGeneration == 0 && c.Now.Sub(s.CreationTimestamp.Time) > unseenFor {
			f.add(Problem, "nodestartup/"+s.Name, c.Kubectl+" get leases -n kube-system    # does a controller run?",
				"no controller has taken note of it")
		}
		unopened(f, c, s)
		for i := range s.Status.Conditions {
			condition := &s.Status.Conditions[i]
			if condition.Status == metav1.ConditionFalse {
				f.add(Warning, "nodestartup/"+s.Name, c.Kubectl+" describe nodestartup "+s.Name, "%s", condition.Message)
			}
		}
	}
	held(f, c)
	if c.StartupsUnread {
		return
	}
	var left []string
	for _, n := range c.Nodes {
		gate := nodestartup.TaintOf(n.Spec.Taints)
		if gate == nil {
			continue
		}
		place, _ := nodestartup.PlaceOf(gate.Value)
		if !known[place.Startup] {
			left = append(left, n.Name)
		}
	}
	if len(left) > 0 {
		f.add(Problem, "nodes", c.Kubectl+" get leases -n kube-system    # do the control loops run?",
			"%s the taint %s of a NodeStartup that is gone, and nobody takes it away: %s",
			many(len(left), "%d node has", "%d nodes have"), nodestartup.TaintKey, some(left))
	}
}

// held names the nodes that do not start all of their pods yet, and what these wait for.
func held(f *findings, c *Cluster) {
	on := map[string]map[string]int{}
	for _, p := range c.Held {
		if on[p.Spec.NodeName] == nil {
			on[p.Spec.NodeName] = map[string]int{}
		}
		on[p.Spec.NodeName][nodestartup.WaitsFor(p)]++
	}
	for _, name := range slices.Sorted(maps.Keys(on)) {
		for _, why := range slices.Sorted(maps.Keys(on[name])) {
			f.add(Warning, "node/"+name, c.Program+" why "+name, "%s there may not start yet. %s",
				many(on[name][why], "%d pod", "%d pods"), why)
		}
	}
}
