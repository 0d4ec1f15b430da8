package fit

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/everynode/everynode/internal/fit/nodeaffinity"
	"github.com/everynode/everynode/internal/fit/toleration"
)

// What a node is reported with on which the pods would be spread too unevenly, or that is in no part of the cluster.
const (
	TextSpread       = "node(s) didn't match pod topology spread constraints"
	TextMissingLabel = TextSpread + " (missing required label)"
)

// spread are the constraints of one sort of a pod.
type spread struct {
	constraints []*constraint
}

// constraint is one constraint with the number of selected pods in each part.
type constraint struct {
	api      *corev1.TopologySpreadConstraint
	selector labels.Selector
	counts   map[string]int
	// itself is 1 if the pod will be counted too.
	itself int
	// lowest is the smallest count, that of part emptiest; second the smallest of the other parts.
	emptiest       string
	lowest, second int
}

// checkSpread: the pods that the pod's constraints select must stay evenly spread over the parts of the cluster.
func checkSpread(q *Question, node *trialNode) []Reason {
	if len(q.spec().TopologySpreadConstraints) == 0 {
		return nil
	}
	if q.spread == nil {
		q.spread = q.countSpread(corev1.DoNotSchedule)
	}
	constraints := q.spread.constraints
	for _, c := range constraints {
		value, ok := node.Labels[c.api.TopologyKey]
		if !ok {
			return fails(EvenSpread, TextMissingLabel, c.api.TopologyKey, true)
		}
		change := 0
		if q.counts(c, constraints, node.Node) {
			change = node.difference(func(other *Pod) bool { return c.selects(other, q.pod.Namespace) })
		}
		if c.counts[value]+change+c.itself-c.lowestWith(value, change) > int(c.api.MaxSkew) {
			return fails(EvenSpread, TextSpread, c.api.TopologyKey, false)
		}
	}
	return nil
}

// lowestWith is the number of pods in the emptiest part if the number of one part were changed; 0 as long as there are
// fewer parts than wanted.
func (c *constraint) lowestWith(value string, change int) int {
	if c.api.MinDomains != nil && len(c.counts) < int(*c.api.MinDomains) {
		return 0
	}
	if change == 0 {
		return c.lowest
	}
	others := c.lowest
	if value == c.emptiest {
		others = c.second
	}
	return min(others, c.counts[value]+change)
}

func (c *constraint) findLowest() {
	if len(c.counts) == 0 {
		return
	}
	c.lowest, c.second = math.MaxInt, math.MaxInt
	for value, count := range c.counts {
		switch {
		case count < c.lowest:
			c.emptiest, c.lowest, c.second = value, count, c.lowest
		case count < c.second:
			c.second = count
		}
	}
}

// countSpread counts for the pod's constraints of one sort. Nodes on which the pod could not be anyway do not count, as
// far as the constraint says so; nor does a node that lacks the label of one of the constraints.
func (q *Question) countSpread(sort corev1.UnsatisfiableConstraintAction) *spread {
	s := &spread{}
	for i := range q.spec().TopologySpreadConstraints {
		if api := &q.spec().TopologySpreadConstraints[i]; api.WhenUnsatisfiable == sort {
			s.constraints = append(s.constraints, newConstraint(api, q.pod))
		}
	}
	if len(s.constraints) == 0 {
		return s
	}
	for _, node := range q.spreadOver(s.constraints) {
		for _, c := range s.constraints {
			if q.counts(c, s.constraints, node) {
				c.counts[node.Labels[c.api.TopologyKey]] += c.selected(q.pod.Namespace, node)
			}
		}
	}
	for _, c := range s.constraints {
		c.findLowest()
	}
	return s
}

// spreadOver returns the nodes that may count. For a pod that names its nodes these are no others, as long as each
// constraint looks at the pod's affinity.
func (q *Question) spreadOver(constraints []*constraint) []*Node {
	names, named := nodeaffinity.Names(q.spec())
	if !named {
		return q.cluster.present
	}
	for _, c := range constraints {
		if !c.honoursAffinity() {
			return q.cluster.present
		}
	}
	var nodes []*Node
	for _, name := range names {
		if node := q.cluster.Node(name); node != nil {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// counts reports whether a node is one of those over which a constraint spreads. Affinity is looked at unless the
// constraint says no, taints only if it says yes.
func (q *Question) counts(c *constraint, all []*constraint, node *Node) bool {
	for _, other := range all {
		if _, ok := node.Labels[other.api.TopologyKey]; !ok {
			return false
		}
	}
	if c.honoursTaints() && toleration.Uncovered(node.Taints, q.spec().Tolerations) != nil {
		return false
	}
	return !c.honoursAffinity() || q.selects(node)
}

func (c *constraint) honoursAffinity() bool {
	return c.api.NodeAffinityPolicy == nil || *c.api.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
}

func (c *constraint) honoursTaints() bool {
	return c.api.NodeTaintsPolicy != nil && *c.api.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
}

func newConstraint(api *corev1.TopologySpreadConstraint, pod *Pod) *constraint {
	selector, err := metav1.LabelSelectorAsSelector(api.LabelSelector)
	if err != nil {
		selector = labels.Nothing() // the API server refuses such a selector
	}
	for _, key := range api.MatchLabelKeys {
		value, ok := pod.Labels[key]
		if !ok {
			continue
		}
		if requirement, err := labels.NewRequirement(key, selection.In, []string{value}); err == nil {
			selector = selector.Add(*requirement)
		}
	}
	c := &constraint{api: api, selector: selector, counts: map[string]int{}}
	if selector.Matches(labels.Set(pod.Labels)) {
		c.itself = 1
	}
	return c
}

// selects reports whether the constraint is about a pod; those that are leaving it is not about.
func (c *constraint) selects(pod *Pod, namespace string) bool {
	return pod.Namespace == namespace && !pod.Terminating && c.selector.Matches(labels.Set(pod.Labels))
}

func (c *constraint) selected(namespace string, node *Node) int {
	selected := 0
	for _, pod := range node.Pods {
		if c.selects(pod, namespace) {
			selected++
		}
	}
	return selected
}

// Crowd is how many of the pods that a pod's advisory spread constraints select are in the parts of each of the nodes;
// nil if it has no such constraint. A node outside all parts is as bad as the fullest of them.
func (c *Cluster) Crowd(pod *Pod, nodes []*Node) []int64 {
	if len(pod.Object.Spec.TopologySpreadConstraints) == 0 {
		return nil
	}
	constraints := c.Ask(pod).countSpread(corev1.ScheduleAnyway).constraints
	if len(constraints) == 0 {
		return nil
	}
	crowd := make([]int64, len(nodes))
	for i, node := range nodes {
		for _, c := range constraints {
			value, ok := node.Labels[c.api.TopologyKey]
			if ok {
				crowd[i] += int64(c.counts[value])
				continue
			}
			for _, count := range c.counts {
				crowd[i] = max(crowd[i], int64(count))
			}
		}
	}
	return crowd
}
