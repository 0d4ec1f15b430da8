// Package podaffinity is the rule that a pod must be, or must not be, in the same part of the cluster as certain other
// pods, and the preference for being near some or far from others. A part is all nodes with the same value of a label.
//
// It is the one rule that looks at all pods, and does so only for pods that ask for it; pods that repel others are kept
// in a list of their own.
package podaffinity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// What a node that fails is reported with.
const (
	ReasonAffinity     = "node(s) didn't match pod affinity rules"
	ReasonAntiAffinity = "node(s) didn't match pod anti-affinity rules"
	ReasonExisting     = "node(s) didn't satisfy existing pods anti-affinity rules"
)

// Filter is the rule for what is required. Preemption is not tried for it.
var Filter = plugins.Filter{
	Name:     "InterPodAffinity",
	Prepare:  prepare,
	HelpedBy: cache.NodeAdded | cache.LabelsChanged | cache.PodRemoved | cache.PodAdded,
}

// Scorer is the rule for what is preferred.
var Scorer = plugins.Scorer{Name: "InterPodAffinity", Weight: 2, Prepare: score}

// part is one part of the cluster: the nodes on which label key has the value.
type part struct{ key, value string }

// term is one requirement, parsed.
type term struct {
	key        string
	namespaces []string
	// selector of namespaces by their labels; nil for none.
	byLabels labels.Selector
	selector labels.Selector
}

func parse(api *corev1.PodAffinityTerm, owner *corev1.Pod) (term, bool) {
	selector, err := metav1.LabelSelectorAsSelector(api.LabelSelector)
	if err != nil {
		return term{}, false
	}
	t := term{key: api.TopologyKey, namespaces: api.Namespaces, selector: selector}
	if api.NamespaceSelector != nil {
		if t.byLabels, err = metav1.LabelSelectorAsSelector(api.NamespaceSelector); err != nil {
			return term{}, false
		}
	} else if len(api.Namespaces) == 0 {
		t.namespaces = []string{owner.Namespace}
	}
	return t, true
}

// parseAll returns the terms, and false if one cannot be read: then the requirement cannot be met.
func parseAll(api []corev1.PodAffinityTerm, owner *corev1.Pod) ([]term, bool) {
	terms := make([]term, 0, len(api))
	for i := range api {
		t, ok := parse(&api[i], owner)
		if !ok {
			return nil, false
		}
		terms = append(terms, t)
	}
	return terms, true
}

func (t *term) matches(pod *corev1.Pod, all *cache.Cache) bool {
	inNamespace := slices.Contains(t.namespaces, pod.Namespace) ||
		t.byLabels != nil && t.byLabels.Matches(labels.Set(all.NamespaceLabels(pod.Namespace)))
	return inNamespace && t.selector.Matches(labels.Set(pod.Labels))
}

func prepare(pod *cache.Pod, all *cache.Cache) plugins.Check {
	refused := repelled(pod, all)
	attract, readable := parseAll(required(pod.Object), pod.Object)
	repel, alsoReadable := parseAll(pod.Repels(), pod.Object)
	if len(refused) == 0 && len(required(pod.Object)) == 0 && len(pod.Repels()) == 0 {
		return nil
	}
	near := holders(attract, all)
	far := partsOf(repel, all)
	first := len(attract) > 0 && isFirst(attract, near, pod, all)
	return func(node *cache.Node) plugins.Verdict {
		switch {
		case !readable || !first && !inAll(attract, near, node) || first && !hasKeys(attract, node):
			return no(ReasonAffinity)
		case !alsoReadable || inAny(far, node):
			return no(ReasonAntiAffinity)
		case inAny(refused, node):
			return no(ReasonExisting)
		}
		return plugins.Verdict{}
	}
}

func no(reason string) plugins.Verdict {
	return plugins.Verdict{Reasons: []string{reason}, Hopeless: true}
}

func required(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// repelled returns the parts in which a pod runs that does not want this one near it.
func repelled(pod *cache.Pod, all *cache.Cache) map[part]bool {
	var parts map[part]bool
	for other, node := range all.Repelling() {
		terms, _ := parseAll(other.Repels(), other.Object)
		for i := range terms {
			value, ok := node.Object.Labels[terms[i].key]
			if !ok || !terms[i].matches(pod.Object, all) {
				continue
			}
			if parts == nil {
				parts = map[part]bool{}
			}
			parts[part{terms[i].key, value}] = true
		}
	}
	return parts
}

// holders returns the parts in which a pod runs that all terms match.
func holders(terms []term, all *cache.Cache) map[part]bool {
	return collect(terms, all, func(other *corev1.Pod) []term {
		for i := range terms {
			if !terms[i].matches(other, all) {
				return nil
			}
		}
		return terms
	})
}

// partsOf returns the parts in which a pod runs that the term of the part's key matches.
func partsOf(terms []term, all *cache.Cache) map[part]bool {
	return collect(terms, all, func(other *corev1.Pod) []term {
		var matching []term
		for i := range terms {
			if terms[i].matches(other, all) {
				matching = append(matching, terms[i])
			}
		}
		return matching
	})
}

func collect(terms []term, all *cache.Cache, matching func(*corev1.Pod) []term) map[part]bool {
	parts := map[part]bool{}
	if len(terms) == 0 {
		return parts
	}
	for _, node := range all.Nodes() {
		for _, other := range node.Pods {
			for _, t := range matching(other.Object) {
				if value, ok := node.Object.Labels[t.key]; ok {
					parts[part{t.key, value}] = true
				}
			}
		}
	}
	return parts
}

// isFirst recognises the first of a group of pods that want to be near each other: no such pod runs yet, and it is one
// itself. It may go anywhere.
func isFirst(terms []term, near map[part]bool, pod *cache.Pod, all *cache.Cache) bool {
	if len(near) > 0 {
		return false
	}
	for i := range terms {
		if !terms[i].matches(pod.Object, all) {
			return false
		}
	}
	return true
}

func hasKeys(terms []term, node *cache.Node) bool {
	for i := range terms {
		if _, ok := node.Object.Labels[terms[i].key]; !ok {
			return false
		}
	}
	return true
}

func inAll(terms []term, parts map[part]bool, node *cache.Node) bool {
	for i := range terms {
		if value, ok := node.Object.Labels[terms[i].key]; !ok || !parts[part{terms[i].key, value}] {
			return false
		}
	}
	return true
}

func inAny(parts map[part]bool, node *cache.Node) bool {
	for p := range parts {
		if value, ok := node.Object.Labels[p.key]; ok && value == p.value {
			return true
		}
	}
	return false
}
