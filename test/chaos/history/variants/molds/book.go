package molds

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/revision"
)

// life is one object as it was from revision to revision. The end is the revision at which it was gone, 0 for none.
type life[T any] struct {
	from []int64
	is   []T
	end  int64
}

// between are the versions that were the newest at some moment from low to high.
func (l *life[T]) between(low, high int64) (out []T) {
	if l == nil {
		return nil
	}
	for i := range l.is {
		if next := append(l.from, l.end)[i+1]; l.from[i] <= high && (next == 0 || next > low) {
			out = append(out, l.is[i])
		}
	}
	return out
}

// Book knows the variants, nodes and DaemonSets of a round, at each revision.
type Book struct {
	variants map[types.UID]*life[*v1alpha1.DaemonSetVariant]
	nodes    map[types.UID]*life[*corev1.Node]
	sets     map[types.UID]*life[*appsv1.DaemonSet]
	// stored are the variants of revisions by their ID: the same ID stands for the same variants.
	stored map[string][]Variant
	since  map[string]int64
}

// Add takes in a change. Changes come in their order.
func (b *Book) Add(at int64, o metav1.Object, gone bool) {
	if b.stored == nil {
		*b = Book{map[types.UID]*life[*v1alpha1.DaemonSetVariant]{}, map[types.UID]*life[*corev1.Node]{},
			map[types.UID]*life[*appsv1.DaemonSet]{}, map[string][]Variant{}, map[string]int64{}}
	}
	switch o := o.(type) {
	case *v1alpha1.DaemonSetVariant:
		put(b.variants, at, o, gone)
	case *corev1.Node:
		put(b.nodes, at, o, gone)
	case *appsv1.DaemonSet:
		put(b.sets, at, o, gone)
	case *appsv1.ControllerRevision:
		b.store(at, o)
	}
}

func put[T metav1.Object](all map[types.UID]*life[T], at int64, o T, gone bool) {
	l := all[o.GetUID()]
	if l == nil {
		l = &life[T]{}
		all[o.GetUID()] = l
	}
	if gone || o.GetDeletionTimestamp() != nil && l.end == 0 {
		l.end = at
	}
	if !gone || len(l.is) == 0 {
		l.from, l.is = append(l.from, at), append(l.is, o)
	}
}

// StoredLabel is the label of a ControllerRevision that holds variants: their ID.
const StoredLabel = "everynode.io/variants"

func (b *Book) store(at int64, r *appsv1.ControllerRevision) {
	var held struct{ Variants []Variant }
	id := r.Labels[StoredLabel]
	if id == "" || b.stored[id] != nil || json.Unmarshal(r.Data.Raw, &held) != nil {
		return
	}
	b.stored[id], b.since[id] = held.Variants, at
}

// Stored are the variants of a revision, if they were stored by then. Of a revision without there are none.
func (b *Book) Stored(of string, by int64) (all []Variant, known bool) {
	id := revision.VariantsOf(of)
	return b.stored[id], id == "" || b.stored[id] != nil && b.since[id] <= by
}

// None reports whether there has never been a variant.
func (b *Book) None() bool { return len(b.variants) == 0 }

// Nodes are the versions of a node between two revisions.
func (b *Book) Nodes(name string, low, high int64) (out []*corev1.Node) {
	for _, l := range b.nodes {
		if l.is[0].Name == name {
			out = append(out, l.between(low, high)...)
		}
	}
	return out
}

// Newest are the variants of a DaemonSet at each moment between two revisions at which one of them, or it, changed.
func (b *Book) Newest(uid types.UID, low, high int64) (out [][]Variant) {
	set := b.sets[uid]
	if set == nil {
		return nil
	}
	low = max(low, set.from[0])
	moments := append([]int64{low}, set.from...)
	for _, l := range b.variants {
		moments = append(append(moments, l.from...), l.end)
	}
	slices.Sort(moments)
	for _, at := range slices.Compact(moments) {
		if at >= low && at <= high {
			out = append(out, b.at(uid, at))
		}
	}
	return out
}

func (b *Book) at(set types.UID, at int64) (out []Variant) {
	for _, d := range b.sets[set].between(at, at) {
		for _, l := range b.variants {
			for _, v := range l.between(at, at) {
				if (l.end == 0 || l.end > at) && Chooses(v.Spec.DaemonSets, d.Labels) {
					out = append(out, VariantOf(v))
				}
			}
		}
	}
	return out
}

// Mixed visits what a DaemonSet's variants can have been for who hears of each by itself, late and in another order:
// each as it was at some moment between two revisions. It ends, and reports true, when visit does.
func (b *Book) Mixed(set types.UID, low, high int64, visit func([]Variant) bool) bool {
	all := slices.Collect(maps.Values(b.variants))
	var choose func(left []*life[*v1alpha1.DaemonSetVariant], chosen []Variant) bool
	choose = func(left []*life[*v1alpha1.DaemonSetVariant], chosen []Variant) bool {
		if len(left) == 0 {
			return visit(chosen)
		}
		l := left[0]
		without := l.from[0] > low || l.end != 0 && l.end <= high
		for _, v := range l.between(low, high) {
			applies := slices.ContainsFunc(b.sets[set].between(low, high), func(d *appsv1.DaemonSet) bool {
				return Chooses(v.Spec.DaemonSets, d.Labels)
			})
			without = without || !applies
			if applies && choose(left[1:], append(slices.Clip(chosen), VariantOf(v))) {
				return true
			}
		}
		return without && choose(left[1:], chosen)
	}
	return choose(all, nil)
}

// Edited reports whether a variant came, changed or went between two revisions.
func (b *Book) Edited(low, high int64) bool {
	for _, l := range b.variants {
		specs := map[int64]bool{}
		for _, v := range l.between(low, high) {
			specs[v.Generation] = true
		}
		if len(specs) > 1 || l.from[0] > low && l.from[0] <= high || l.end > low && l.end <= high {
			return true
		}
	}
	return false
}

// Differs reports whether a pod of its DaemonSet's newest template can have been found to be another than variants say:
// by those of some moment between two revisions, or of one of some revisions, on the node as it was then. A pod that
// its node can never give what it was to be given is one too. So is one that was made, at a revision, by variants of
// before, when its node's pod was already one that the API refuses: that is tried only for nodes that have a pod.
func (b *Book) Differs(
	set types.UID, p *corev1.Pod, t *corev1.PodTemplateSpec, node string, made, low, high int64, of ...string,
) bool {
	if b.None() {
		return false
	}
	if Infeasible(p) {
		return true
	}
	early := b.at(set, made)
	all := b.Newest(set, low, high)
	for _, r := range of {
		if stored, known := b.Stored(r, high); known && r != "" {
			all = append(all, stored)
		}
	}
	for _, n := range b.Nodes(node, low, high) {
		if For(t, early, n).Why == refused {
			return true
		}
		for _, variants := range all {
			if o := For(t, variants, n); o.MayChange(OfPod(p)) {
				return true
			}
		}
	}
	return false
}

// Infeasible reports whether a pod's node says that it can never give what is asked for.
func Infeasible(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		holds := c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue
		return holds && c.Reason == corev1.PodReasonInfeasible
	})
}

// mark is the annotation of a pod with what it was made by.
const mark = "everynode.io/variant"

// Twins reports whether two pods were made by the same variants, to the same amounts.
func Twins(a, b *corev1.Pod) bool {
	by := func(p *corev1.Pod) string {
		return revision.VariantsOf(p.Labels[revision.Label]) + strings.ReplaceAll(p.Annotations[mark], p.Name, "")
	}
	return by(a) == by(b) && !Infeasible(a) && !Infeasible(b)
}

// Resized reports whether a pod asks for other amounts than it did.
func Resized(was, is *corev1.Pod) bool {
	a, b := OfPod(was), OfPod(is)
	return a.CPU != b.CPU || a.Memory != b.Memory || a.Limit != b.Limit
}

// Answers returns what reports whether a pod's node has given it what it was asked for at a version, or never will.
func Answers(asked *corev1.Pod) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return Holds(p) || Infeasible(p) && p.Status.ObservedGeneration >= asked.Generation
	}
}

// Holds reports whether a pod has the amounts that it asks for, as its node says.
func Holds(p *corev1.Pod) bool {
	under := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		pending := c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress
		return pending && c.Status == corev1.ConditionTrue
	})
	for _, s := range p.Status.ContainerStatuses {
		if s.Resources == nil || len(p.Spec.Containers) == 0 {
			continue
		}
		has := p.DeepCopy()
		has.Spec.Containers[0].Resources = *s.Resources
		if Resized(has, p) {
			return false
		}
	}
	return !under && p.Status.ObservedGeneration >= p.Generation
}
