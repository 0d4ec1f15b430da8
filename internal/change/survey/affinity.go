package survey

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// required is the required node affinity of a template, nil if it has none.
func required(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// requiredTerms writes its terms for people.
func requiredTerms(spec *corev1.PodSpec) (out []string) {
	r := required(spec)
	if r == nil {
		return nil
	}
	for i := range r.NodeSelectorTerms {
		var parts []string
		for _, e := range slices.Concat(r.NodeSelectorTerms[i].MatchExpressions, r.NodeSelectorTerms[i].MatchFields) {
			text := e.Key + " " + string(e.Operator)
			if len(e.Values) > 0 {
				text += " " + strings.Join(e.Values, ",")
			}
			parts = append(parts, text)
		}
		out = append(out, strings.Join(parts, " and "))
	}
	return out
}

func affinityMatches(spec *corev1.PodSpec, n *corev1.Node) bool {
	ok, err := nodeaffinity.NewRequiredNodeAffinity(nil, spec.Affinity).Match(n)
	return err == nil && ok
}
