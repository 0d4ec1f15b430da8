package resizing

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/pod"
)

// IntentAnnotation is the annotation of a pod that is about to be asked to have other amounts: its Intent. The Record
// takes its place. Without it nobody could tell amounts of a resize that ended half way from those that somebody gave.
const IntentAnnotation = "everynode.io/resizing"

// Intent says which amounts a pod is about to be given.
type Intent struct {
	// Pod is the pod's own name, so that the text says nothing in a template, or copied to another pod.
	Pod string `json:"pod"`
	// Amounts are tried for. The pod has some of them already if an earlier try ended half way.
	Amounts []variant.Resources `json:"amounts"`
}

// Intend is the annotation's value for a pod that is about to be given the amounts of the way; "" if it says so
// already, or is given none.
func (w *Way) Intend(p *corev1.Pod) (string, error) {
	if len(w.Amounts) == 0 {
		return "", nil
	}
	next := Intent{Pod: p.Name, Amounts: []variant.Resources{w.Amounts}}
	if half := HalfWay(p); len(half) > 0 {
		next.Amounts = append(next.Amounts, half)
	}
	text, err := json.Marshal(next)
	if err != nil {
		return "", fmt.Errorf("write what pod %s is about to be asked: %w", p.Name, err)
	}
	if p.Annotations[IntentAnnotation] == string(text) {
		return "", nil
	}
	return string(text), nil
}

// isIntended reports whether the pod was last to be given the amounts of the way.
func (w *Way) isIntended(p *corev1.Pod) bool {
	i := intentOf(p)
	return i != nil && len(i.Amounts) > 0 && apiequality.Semantic.DeepEqual(i.Amounts[0], w.Amounts)
}

// intentOf reads what a pod is about to be given; nil if it does not say, or the text is of another pod.
func intentOf(p *corev1.Pod) *Intent {
	var i Intent
	text := p.Annotations[IntentAnnotation]
	if text == "" || json.Unmarshal([]byte(text), &i) != nil || i.Pod != p.Name {
		return nil
	}
	return &i
}

// HalfWay are the amounts that a pod was given by a resize of which it does not say that it was done, by container.
// What cannot be read, or is of another pod, is no intent.
func HalfWay(p *corev1.Pod) variant.Resources {
	i := intentOf(p)
	if i == nil {
		return nil
	}
	out := variant.Resources{}
	for _, c := range pod.Containers(p) {
		var is corev1.ResourceRequirements
		for _, tried := range i.Amounts {
			given(tried[c.Name].Requests, c.Resources.Requests, &is.Requests)
			given(tried[c.Name].Limits, c.Resources.Limits, &is.Limits)
		}
		if len(is.Requests)+len(is.Limits) > 0 {
			out[c.Name] = is
		}
	}
	return out
}

// given adds the amounts that were tried for and are there.
func given(tried, live corev1.ResourceList, out *corev1.ResourceList) {
	for name, amount := range tried {
		has, is := live[name]
		if !is || has.Cmp(amount) != 0 || !slices.Contains(compute, name) {
			continue
		}
		if *out == nil {
			*out = corev1.ResourceList{}
		}
		(*out)[name] = amount
	}
}
