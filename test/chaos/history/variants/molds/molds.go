// Package molds says what the pod of a node is to be like by a template and DaemonSetVariants; pure and naive. It knows
// none of the product's code, and no CEL: the formulas and patches of rounds are of a list that says what each gives.
package molds

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Looks are what variants of rounds change of a pod: amounts in thousandths of a core and in bytes, -1 for none.
type Looks struct {
	CPU, Memory, Limit, Storage int64
	Level, Note, Restart        string
}

func (l Looks) String() string {
	return fmt.Sprintf("cpu %dm, memory %dMi of %dMi, storage %dMi, %q %q %q",
		l.CPU, l.Memory/mebi, l.Limit/mebi, l.Storage/mebi, l.Level, l.Note, l.Restart)
}

// Of are those of a pod, or of a template.
func Of(spec *corev1.PodSpec, annotations map[string]string) (l Looks) {
	if len(spec.Containers) == 0 {
		return l
	}
	c := &spec.Containers[0]
	amount := func(list corev1.ResourceList, name corev1.ResourceName) int64 {
		q, is := list[name]
		switch {
		case !is:
			return -1
		case name == corev1.ResourceCPU:
			return q.MilliValue()
		}
		return q.Value()
	}
	l.CPU = amount(c.Resources.Requests, corev1.ResourceCPU)
	l.Memory = amount(c.Resources.Requests, corev1.ResourceMemory)
	l.Limit = amount(c.Resources.Limits, corev1.ResourceMemory)
	l.Storage = amount(c.Resources.Requests, corev1.ResourceEphemeralStorage)
	for _, e := range c.Env {
		if e.Name == "LEVEL" {
			l.Level = e.Value
		}
	}
	for _, p := range c.ResizePolicy {
		if p.ResourceName == corev1.ResourceCPU && p.RestartPolicy == corev1.RestartContainer {
			l.Restart = string(p.RestartPolicy)
		}
	}
	l.Note = annotations[NoteAnnotation]
	return l
}

// OfPod are those of a pod.
func OfPod(p *corev1.Pod) Looks { return Of(&p.Spec, p.Annotations) }

// Variant is what counts of a DaemonSetVariant, as revisions store it.
type Variant struct {
	Name      string                               `json:"name"`
	Nodes     *metav1.LabelSelector                `json:"nodes"`
	Priority  int32                                `json:"priority"`
	Patch     json.RawMessage                      `json:"patch"`
	Resources map[string]v1alpha1.VariantResources `json:"resources"`
}

// VariantOf reads a DaemonSetVariant.
func VariantOf(v *v1alpha1.DaemonSetVariant) Variant {
	out := Variant{Name: v.Name, Nodes: v.Spec.Nodes, Priority: v.Spec.Priority, Resources: v.Spec.Resources}
	if v.Spec.Patch != nil {
		out.Patch = v.Spec.Patch.Raw
	}
	return out
}

// Chooses reports whether a variant chooses DaemonSets, or nodes, with these labels.
func Chooses(s *metav1.LabelSelector, of map[string]string) bool {
	if s == nil {
		return true
	}
	is, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && is.Matches(labels.Set(of))
}

// Outcome is what a node's pod is to be like. Keeps says that the pod that is there stays as it is, None that no pod
// can be made, Why the reason of either.
type Outcome struct {
	Looks
	Keeps, None bool
	Why         string
}

// For is the outcome of a template with some variants on a node.
func For(t *corev1.PodTemplateSpec, all []Variant, n *corev1.Node) (o Outcome) {
	o.Looks = Of(&t.Spec, t.Annotations)
	chosen := choose(all, n)
	if len(chosen) == 0 {
		return o
	}
	if len(chosen) > 1 {
		o.Keeps, o.Why = true, fmt.Sprintf("%s and %s are in conflict", chosen[0].Name, chosen[1].Name)
	}
	v := chosen[0]
	if len(v.Patch) > 0 {
		patches[plain(string(v.Patch))](&o)
	}
	for container, r := range v.Resources {
		if container != t.Spec.Containers[0].Name {
			return o.fails(v.Name + " is for container " + container)
		}
		o.request(&r, n)
	}
	if o.Limit >= 0 && o.Memory > o.Limit {
		return o.fails(v.Name + " requests more than the limit")
	}
	return o
}

// choose are the variants of the highest priority that choose a node, by name.
func choose(all []Variant, n *corev1.Node) (out []Variant) {
	for _, v := range all {
		if Chooses(v.Nodes, n.Labels) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b Variant) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
	return slices.DeleteFunc(out, func(v Variant) bool { return v.Priority < out[0].Priority })
}

func (o Outcome) fails(why string) Outcome {
	o.Keeps, o.None, o.Why = true, true, why
	return o
}

// request works out the amounts.
func (o *Outcome) request(r *v1alpha1.VariantResources, n *corev1.Node) {
	for name, text := range r.Requests {
		switch name {
		case corev1.ResourceCPU:
			o.compute(n, text, &o.CPU, 0.01, 10)
		case corev1.ResourceMemory:
			o.compute(n, text, &o.Memory, 16*mebi, 16*mebi)
		case corev1.ResourceEphemeralStorage:
			o.compute(n, text, &o.Storage, 16*mebi, 16*mebi)
		}
	}
	if text, is := r.Limits[corev1.ResourceMemory]; is {
		o.compute(n, text, &o.Limit, 16*mebi, 16*mebi)
	}
}

// compute rounds what a formula gives up to whole grains, of which each is worth so much in the looks.
func (o *Outcome) compute(n *corev1.Node, text string, into *int64, grain float64, worth int64) {
	value, is := formulas[text](n)
	if !is {
		*o = o.fails("formula " + text + " fails")
		return
	}
	*into = int64(math.Ceil(value/grain-1e-9)) * worth
}

// Fits reports whether a pod that looks so need not be touched: its amounts differ by less than a tenth.
func (o *Outcome) Fits(have Looks) bool {
	return o.close(have, func(have, want int64) bool {
		slack := int64(10) // what rounding may add
		if want >= mebi {
			slack = 16 * mebi
		}
		return 10*(max(have, want)-min(have, want)-slack) < have
	})
}

// MayChange reports whether a pod that looks so may be touched: its amounts differ by a tenth, as they are.
func (o *Outcome) MayChange(have Looks) bool {
	return !o.close(have, func(have, want int64) bool { return 10*(max(have, want)-min(have, want)) < have })
}

func (o *Outcome) close(have Looks, near func(have, want int64) bool) bool {
	is := func(have, want int64) bool { return have == want || have >= 0 && want >= 0 && near(have, want) }
	same := have.Level == o.Level && have.Note == o.Note && have.Restart == o.Restart
	return o.Keeps || same && is(have.CPU, o.CPU) && is(have.Memory, o.Memory) && is(have.Limit, o.Limit) &&
		is(have.Storage, o.Storage)
}

// Sound reports whether a variant can be had on each node, and leaves room for others.
func Sound(s *v1alpha1.DaemonSetVariantSpec) bool {
	v := VariantOf(&v1alpha1.DaemonSetVariant{Spec: *s})
	if len(v.Patch) > 0 && plain(string(v.Patch)) == plain(Refused) {
		return false
	}
	for container, r := range v.Resources {
		cpu := r.Requests[corev1.ResourceCPU]
		if container != "main" || slices.Contains([]string{NoSuch, NotSmall, Greedy, Impossible}, cpu) ||
			r.Limits[corev1.ResourceMemory] == BelowAll {
			return false
		}
	}
	return true
}
