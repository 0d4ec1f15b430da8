package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// What a node is reported with that the pod does not name, or does not select.
const (
	TextNodeName     = "node(s) didn't match the requested node name"
	TextNodeAffinity = "node(s) didn't match Pod's node affinity/selector"
)

const nameField = "metadata.name"

// checkName: a pod that names its node runs nowhere else.
func checkName(q *Question, node *trialNode) []Reason {
	if wanted := q.spec().NodeName; wanted != "" && wanted != node.Name {
		return fails(NodeName, TextNodeName, wanted, true)
	}
	return nil
}

// checkNodeAffinity: a node must match the pod's node selector and required node affinity.
func checkNodeAffinity(q *Question, node *trialNode) []Reason {
	if q.selects(node.Node) {
		return nil
	}
	return fails(NodeAffinity, TextNodeAffinity, "", true)
}

// nodeSelection is what a pod asks of its node's name and labels.
type nodeSelection struct {
	everything bool
	// only is the name of the one node of a pod that asks for nothing else, which needs no parsing.
	only   string
	parsed nodeaffinity.RequiredNodeAffinity
	// node is what is shown to the parsed selector.
	node *corev1.Node
}

func (q *Question) selects(node *Node) bool {
	if q.selection == nil {
		q.selection = newSelection(q.spec())
	}
	s := q.selection
	switch {
	case s.everything:
		return true
	case s.only != "":
		return node.Name == s.only
	}
	s.node.Name, s.node.Labels = node.Name, node.Labels
	// An affinity that cannot be parsed matches no node.
	matches, err := s.parsed.Match(s.node)
	return matches && err == nil
}

func newSelection(spec *corev1.PodSpec) *nodeSelection {
	required := requiredNodeAffinity(spec)
	if len(spec.NodeSelector) == 0 && required == nil {
		return &nodeSelection{everything: true}
	}
	if name, only := onlyName(spec, required); only {
		return &nodeSelection{only: name}
	}
	return &nodeSelection{parsed: nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity), node: &corev1.Node{}}
}

// onlyName recognises a pod that asks for nothing but one node's name, as those of a DaemonSet do.
func onlyName(spec *corev1.PodSpec, required *corev1.NodeSelector) (string, bool) {
	if len(spec.NodeSelector) != 0 || required == nil || len(required.NodeSelectorTerms) != 1 {
		return "", false
	}
	term := &required.NodeSelectorTerms[0]
	if len(term.MatchExpressions) != 0 || len(term.MatchFields) != 1 {
		return "", false
	}
	field := &term.MatchFields[0]
	if field.Key != nameField || field.Operator != corev1.NodeSelectorOpIn || len(field.Values) != 1 || field.Values[0] == "" {
		return "", false
	}
	return field.Values[0], true
}

func requiredNodeAffinity(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// NamedNodes returns the names of the only nodes that the pod's required affinity allows, and false if it does not name
// them. The affinity names them when each of its terms, which are alternatives, does. No other node need be looked at.
func NamedNodes(pod *Pod) ([]string, bool) {
	required := requiredNodeAffinity(&pod.Object.Spec)
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return nil, false
	}
	var names []string
	for i := range required.NodeSelectorTerms {
		inTerm, named := namesOf(&required.NodeSelectorTerms[i])
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
