// Package topologyspread is the rule that the pods which a pod's spread constraints select stay evenly spread over the
// parts of the cluster. A part is all nodes with the same value of a label.
package topologyspread

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
	"github.com/everynode/everynode/internal/scheduler/plugins/tainttoleration"
)

// What a node that fails is reported with.
const (
	Reason             = "node(s) didn't match pod topology spread constraints"
	ReasonMissingLabel = Reason + " (missing required label)"
)

// Filter is the rule for constraints that forbid. Preemption is not tried for it.
var Filter = plugins.Filter{
	Name:     "PodTopologySpread",
	Prepare:  prepare,
	HelpedBy: cache.NodeAdded | cache.LabelsChanged | cache.TaintsChanged | cache.PodRemoved | cache.PodAdded,
}

// Scorer is the rule for constraints that only advise: the emptier the node's part, the better.
var Scorer = plugins.Scorer{Name: "PodTopologySpread", Weight: 2, Prepare: score}

// constraint is one constraint with the number of selected pods in each part.
type constraint struct {
	api      *corev1.TopologySpreadConstraint
	selector labels.Selector
	counts   map[string]int
	// itself is 1 if the pod will be counted too.
	itself int
}

func prepare(pod *cache.Pod, all *cache.Cache) plugins.Check {
	constraints := count(pod, all, corev1.DoNotSchedule)
	if len(constraints) == 0 {
		return nil
	}
	allowed := make([]int, len(constraints))
	for i := range constraints {
		allowed[i] = constraints[i].lowest() + int(constraints[i].api.MaxSkew) - constraints[i].itself
	}
	return func(node *cache.Node) plugins.Verdict {
		for i := range constraints {
			c := &constraints[i]
			value, ok := node.Object.Labels[c.api.TopologyKey]
			if !ok {
				return plugins.Verdict{Reasons: []string{ReasonMissingLabel}, Hopeless: true}
			}
			if c.counts[value] > allowed[i] {
				return plugins.Verdict{Reasons: []string{Reason}, Hopeless: true}
			}
		}
		return plugins.Verdict{}
	}
}

// lowest is the number of pods in the emptiest part; 0 as long as there are fewer parts than wanted.
func (c *constraint) lowest() int {
	if c.api.MinDomains != nil && len(c.counts) < int(*c.api.MinDomains) {
		return 0
	}
	lowest, first := 0, true
	for _, count := range c.counts {
		if first || count < lowest {
			lowest, first = count, false
		}
	}
	return lowest
}

// count prepares the pod's constraints of one sort. Nodes on which the pod could not be anyway do not count, as far as the
// constraint says so; nor does a node that lacks the label of one of the constraints.
func count(pod *cache.Pod, all *cache.Cache, sort corev1.UnsatisfiableConstraintAction) []constraint {
	var constraints []constraint
	for i := range pod.Object.Spec.TopologySpreadConstraints {
		if api := &pod.Object.Spec.TopologySpreadConstraints[i]; api.WhenUnsatisfiable == sort {
			constraints = append(constraints, newConstraint(api, pod.Object))
		}
	}
	if len(constraints) == 0 {
		return nil
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod.Object)
	for _, node := range all.Nodes() {
		if !hasKeys(constraints, node) {
			continue
		}
		matches, err := required.Match(node.Object)
		matches = matches && err == nil
		tolerated := toleratesAll(node.Object.Spec.Taints, pod.Object.Spec.Tolerations)
		for i := range constraints {
			c := &constraints[i]
			if !c.includes(matches, tolerated) {
				continue
			}
			c.counts[node.Object.Labels[c.api.TopologyKey]] += c.selected(pod.Object.Namespace, node)
		}
	}
	return constraints
}

// includes reports whether a node counts, of which is said whether the pod's node affinity matches it and whether the pod
// tolerates its taints. Affinity is looked at unless the constraint says no, taints only if it says yes.
func (c *constraint) includes(matches, tolerated bool) bool {
	affinity := c.api.NodeAffinityPolicy == nil || *c.api.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	taints := c.api.NodeTaintsPolicy != nil && *c.api.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	return (matches || !affinity) && (tolerated || !taints)
}

func newConstraint(api *corev1.TopologySpreadConstraint, pod *corev1.Pod) constraint {
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
	c := constraint{api: api, selector: selector, counts: map[string]int{}}
	if selector.Matches(labels.Set(pod.Labels)) {
		c.itself = 1
	}
	return c
}

// selected counts the node's pods that the constraint is about; those that are leaving are not.
func (c *constraint) selected(namespace string, node *cache.Node) int {
	selected := 0
	for _, other := range node.Pods {
		if other.Object.Namespace == namespace && !other.Terminating() && c.selector.Matches(labels.Set(other.Object.Labels)) {
			selected++
		}
	}
	return selected
}

func hasKeys(constraints []constraint, node *cache.Node) bool {
	for i := range constraints {
		if _, ok := node.Object.Labels[constraints[i].api.TopologyKey]; !ok {
			return false
		}
	}
	return true
}

func toleratesAll(taints []corev1.Taint, tolerations []corev1.Toleration) bool {
	for i := range taints {
		if taints[i].Effect != corev1.TaintEffectPreferNoSchedule && !tainttoleration.Tolerated(&taints[i], tolerations) {
			return false
		}
	}
	return true
}

func score(pod *cache.Pod, nodes []*cache.Node, all *cache.Cache) []int64 {
	constraints := count(pod, all, corev1.ScheduleAnyway)
	if len(constraints) == 0 {
		return nil
	}
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		for j := range constraints {
			c := &constraints[j]
			value, ok := node.Object.Labels[c.api.TopologyKey]
			if ok {
				scores[i] += int64(c.counts[value])
				continue
			}
			// A node outside all parts is as bad as the fullest of them.
			for _, count := range c.counts {
				scores[i] = max(scores[i], int64(count))
			}
		}
	}
	return plugins.Normalize(scores, true)
}
