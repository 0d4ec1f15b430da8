// Package nodeaffinity is the rule that a node must match a pod's node selector and required node affinity, and had
// better match its preferred node affinity.
//
// A pod whose affinity names its node (matchFields metadata.name), as every pod of a DaemonSet does, is narrowed to that
// node: no other one is looked at.
package nodeaffinity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// Reason is what a node that fails is reported with.
const Reason = "node(s) didn't match Pod's node affinity/selector"

const nameField = "metadata.name"

// Filter is the rule for what is required.
var Filter = plugins.Filter{Name: "NodeAffinity", Prepare: prepare, HelpedBy: cache.NodeAdded | cache.LabelsChanged}

// Narrower names the nodes of a pod that names its nodes.
var Narrower = plugins.Narrower{Name: "NodeAffinity", Nodes: Nodes}

// Scorer is the rule for what is preferred.
var Scorer = plugins.Scorer{Name: "NodeAffinity", Weight: 2, Prepare: score}

// Nodes returns the names of the only nodes that the pod's required affinity allows, and false if it does not name them.
// The affinity names them when each of its terms, which are alternatives, does.
func Nodes(pod *cache.Pod) ([]string, bool) {
	selector := required(pod.Object)
	if selector == nil || len(selector.NodeSelectorTerms) == 0 {
		return nil, false
	}
	var names []string
	for i := range selector.NodeSelectorTerms {
		inTerm, named := namesOf(&selector.NodeSelectorTerms[i])
		if !named {
			return nil, false
		}
		for _, name := range inTerm {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, true
}

// namesOf returns the names that all name requirements of one term have in common.
func namesOf(term *corev1.NodeSelectorTerm) (names []string, named bool) {
	for i := range term.MatchFields {
		field := &term.MatchFields[i]
		if field.Key != nameField || field.Operator != corev1.NodeSelectorOpIn {
			continue
		}
		if !named {
			names, named = field.Values, true
			continue
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(field.Values, name) })
	}
	return names, named
}

func prepare(pod *cache.Pod, _ *cache.Cache) plugins.Check {
	spec := &pod.Object.Spec
	selector := required(pod.Object)
	if len(spec.NodeSelector) == 0 && selector == nil {
		return nil
	}
	if name, only := onlyName(spec, selector); only {
		return func(node *cache.Node) plugins.Verdict { return verdict(node.Name == name) }
	}
	parsed := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	return func(node *cache.Node) plugins.Verdict {
		// An affinity that cannot be parsed matches no node.
		matches, err := parsed.Match(node.Object)
		return verdict(matches && err == nil)
	}
}

// onlyName recognises a pod that asks for nothing but one node's name, which needs no parsing.
func onlyName(spec *corev1.PodSpec, selector *corev1.NodeSelector) (string, bool) {
	if len(spec.NodeSelector) != 0 || selector == nil || len(selector.NodeSelectorTerms) != 1 {
		return "", false
	}
	term := &selector.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return "", false
	}
	field := &term.MatchFields[0]
	if field.Key != nameField || field.Operator != corev1.NodeSelectorOpIn || len(field.Values) != 1 {
		return "", false
	}
	return field.Values[0], true
}

func verdict(matches bool) plugins.Verdict {
	if matches {
		return plugins.Verdict{}
	}
	return plugins.Verdict{Reasons: []string{Reason}, Hopeless: true}
}

func required(pod *corev1.Pod) *corev1.NodeSelector {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func score(pod *cache.Pod, nodes []*cache.Node, _ *cache.Cache) []int64 {
	affinity := pod.Object.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || len(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	if err != nil {
		// The API server refuses such terms; a preference that cannot be read prefers nothing.
		return nil
	}
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		scores[i] = terms.Score(node.Object)
	}
	return plugins.Normalize(scores, false)
}
