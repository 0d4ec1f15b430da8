package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Term is one term of a pod's affinity or anti-affinity, parsed: the pods that it is about, and the label by whose
// values the cluster is divided into parts.
type Term struct {
	key        string
	namespaces []string
	// byLabels selects namespaces by their labels; nil for none.
	byLabels labels.Selector
	selector labels.Selector
	// id is the same for terms that say the same.
	id string
}

// ParseTerm parses a term of a pod in the namespace. It is false for a term that cannot be read, which the API server
// does not let in.
func ParseTerm(api *corev1.PodAffinityTerm, namespace string) (*Term, bool) {
	selector, err := metav1.LabelSelectorAsSelector(api.LabelSelector)
	if err != nil {
		return nil, false
	}
	t := &Term{key: api.TopologyKey, selector: selector, namespaces: slices.Compact(slices.Sorted(slices.Values(api.Namespaces)))}
	if api.NamespaceSelector != nil {
		if t.byLabels, err = metav1.LabelSelectorAsSelector(api.NamespaceSelector); err != nil {
			return nil, false
		}
	} else if len(api.Namespaces) == 0 {
		t.namespaces = []string{namespace}
	}
	t.id = t.identity(api)
	return t, true
}

// identity tells a selector that is missing, and selects nothing, from an empty one, which selects everything: both are
// written alike.
func (t *Term) identity(api *corev1.PodAffinityTerm) string {
	var id strings.Builder
	id.WriteString(t.key)
	for _, namespace := range t.namespaces {
		id.WriteString("\x00n")
		id.WriteString(namespace)
	}
	if t.byLabels != nil {
		id.WriteString("\x00l")
		id.WriteString(t.byLabels.String())
	}
	if api.LabelSelector != nil {
		id.WriteString("\x00s")
		id.WriteString(t.selector.String())
	}
	return id.String()
}

// parseAll returns the terms, and false if one cannot be read: then the requirement cannot be met.
func parseAll(api []corev1.PodAffinityTerm, namespace string) ([]*Term, bool) {
	if len(api) == 0 {
		return nil, true
	}
	terms := make([]*Term, 0, len(api))
	for i := range api {
		t, ok := ParseTerm(&api[i], namespace)
		if !ok {
			return nil, false
		}
		terms = append(terms, t)
	}
	return terms, true
}

func (t *Term) matches(pod *Pod, all *Cluster) bool {
	inNamespace := slices.Contains(t.namespaces, pod.Namespace) ||
		t.byLabels != nil && t.byLabels.Matches(labels.Set(all.NamespaceLabels(pod.Namespace)))
	return inNamespace && t.selector.Matches(labels.Set(pod.Labels))
}

func matchesAll(terms []*Term, pod *Pod, all *Cluster) bool {
	for _, t := range terms {
		if !t.matches(pod, all) {
			return false
		}
	}
	return true
}
