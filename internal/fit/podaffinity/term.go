// Package podaffinity reads terms of affinity and anti-affinity between pods, and knows which pods they are about. It
// is pure.
package podaffinity

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

// Parse parses a term of a pod in the namespace. It is false for a term that cannot be read, which the API server
// does not let in.
func Parse(api *corev1.PodAffinityTerm, namespace string) (*Term, bool) {
	selector, err := metav1.LabelSelectorAsSelector(api.LabelSelector)
	if err != nil {
		return nil, false
	}
	t := &Term{key: api.TopologyKey, selector: selector,
		namespaces: slices.Compact(slices.Sorted(slices.Values(api.Namespaces)))}
	if api.NamespaceSelector != nil {
		t.byLabels, err = metav1.LabelSelectorAsSelector(api.NamespaceSelector)
		if err != nil {
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

// ParseAll returns the terms, and false if one cannot be read: then the requirement cannot be met.
func ParseAll(api []corev1.PodAffinityTerm, namespace string) ([]*Term, bool) {
	if len(api) == 0 {
		return nil, true
	}
	terms := make([]*Term, 0, len(api))
	for i := range api {
		t, ok := Parse(&api[i], namespace)
		if !ok {
			return nil, false
		}
		terms = append(terms, t)
	}
	return terms, true
}

// Namespaces knows the labels of namespaces.
type Namespaces interface {
	NamespaceLabels(name string) map[string]string
}

// Key is the label by whose values the cluster is divided into parts.
func (t *Term) Key() string { return t.key }

// ID is the same for terms that say the same.
func (t *Term) ID() string { return t.id }

// ByLabels reports whether the term selects namespaces by their labels.
func (t *Term) ByLabels() bool { return t.byLabels != nil }

// Matches reports whether the term is about a pod with these labels in the namespace.
func (t *Term) Matches(namespace string, of map[string]string, all Namespaces) bool {
	inNamespace := slices.Contains(t.namespaces, namespace) ||
		t.byLabels != nil && t.byLabels.Matches(labels.Set(all.NamespaceLabels(namespace)))
	return inNamespace && t.selector.Matches(labels.Set(of))
}

// MatchAll reports whether all the terms are about a pod with these labels in the namespace.
func MatchAll(terms []*Term, namespace string, of map[string]string, all Namespaces) bool {
	for _, t := range terms {
		if !t.Matches(namespace, of, all) {
			return false
		}
	}
	return true
}
