// Package nodeaffinity knows which nodes a pod selects, by its node selector and its required affinity, and which it
// names.
// It is pure.
package nodeaffinity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

const nameField = "metadata.name"

// Selection is what a pod asks of its node's name and labels.
type Selection struct {
	everything bool
	// only is the name of the one node of a pod that asks for nothing else, which needs no parsing.
	only   string
	parsed nodeaffinity.RequiredNodeAffinity
	// node is what is shown to the parsed selector.
	node *corev1.Node
}

// Matches reports whether the pod may run on a node of that name with these labels.
func (s *Selection) Matches(name string, labels map[string]string) bool {
	switch {
	case s.everything:
		return true
	case s.only != "":
		return name == s.only
	}
	s.node.Name, s.node.Labels = name, labels
	// An affinity that cannot be parsed matches no node.
	matches, err := s.parsed.Match(s.node)
	return matches && err == nil
}

// Read reads what a pod asks by its node selector and its required affinity.
func Read(spec *corev1.PodSpec) *Selection {
	required := requiredNodeAffinity(spec)
	if len(spec.NodeSelector) == 0 && required == nil {
		return &Selection{everything: true}
	}
	if name, only := onlyName(spec, required); only {
		return &Selection{only: name}
	}
	return &Selection{parsed: nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity),
		node: &corev1.Node{}}
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
	if field.Key != nameField || field.Operator != corev1.NodeSelectorOpIn || len(field.Values) != 1 ||
		field.Values[0] == "" {
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

// Names returns the names of the only nodes that the pod's required affinity allows, and false if it does not name
// them. The affinity names them when each of its terms, which are alternatives, does. No other node need be looked at.
func Names(spec *corev1.PodSpec) ([]string, bool) {
	required := requiredNodeAffinity(spec)
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
		names = slices.DeleteFunc(slices.Clone(names),
			func(name string) bool { return !slices.Contains(field.Values, name) })
	}
	return names, named
}
