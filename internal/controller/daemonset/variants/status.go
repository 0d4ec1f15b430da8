package variants

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

// statusAgain is when a status is written again that changes meanwhile, or cannot be written.
const statusAgain = 2 * time.Second

// count is what is counted of one variant of a DaemonSet.
type count struct {
	nodes, failing, tied int
	requested            map[corev1.ResourceName]float64
	// example is one node where it cannot be had, and why; with others of the same priority there.
	node, why string
	with      []string
	// scaled is on how many nodes a VerticalPodAutoscaler gives pods amounts too, scaledOn one of these.
	scaled   int
	scaledOn string
}

// IsScaled reports whether a VerticalPodAutoscaler says that it has given a pod amounts, as the pod was made or as it
// ran. Nobody needs to read its objects for that.
func IsScaled(p *corev1.Pod) bool {
	return p != nil && (p.Annotations["vpaUpdates"] != "" || p.Annotations["vpaInPlaceUpdated"] != "")
}

// Statuses returns the variants whose status says something else than what is so now, with what it is to say; moved is
// false if nothing was looked at.
func (b *Book) Statuses() (out []*v1alpha1.DaemonSetVariant, moved bool) {
	switch next := b.looked.Add(statusAgain); {
	case !b.moved:
		return nil, false
	case next.After(b.now): // many pods come at once, and nodes are counted one by one
		b.again = next
		return nil, false
	}
	b.moved, b.looked = false, b.now
	for _, s := range b.sets {
		b.recount(s)
	}
	for _, uid := range slices.Sorted(maps.Keys(b.all)) {
		v := b.all[uid]
		next := v.DeepCopy()
		b.describe(next)
		if apiequality.Semantic.DeepEqual(v.Status, next.Status) || v.DeletionTimestamp != nil || newer.Check(v) != nil {
			continue
		}
		if b.writing[uid] {
			b.again = b.now.Add(statusAgain)
			continue
		}
		b.writing[uid] = true
		out = append(out, next)
	}
	return out, true
}

// recount counts the nodes of each variant of a DaemonSet: those that have its pod, or are to have it.
func (b *Book) recount(s *set) {
	s.counts = map[string]*count{}
	if s.newest == nil || s.info == nil {
		return
	}
	of := func(name string) *count {
		if s.counts[name] == nil {
			s.counts[name] = &count{}
		}
		return s.counts[name]
	}
	m := b.moldsOf(s.info.UID, s, content.WithVariants(s.info.Revision, s.newest.ID))
	if m == nil {
		return
	}
	for _, node := range slices.Sorted(maps.Keys(s.pods)) {
		n := b.nodes[node]
		if n == nil {
			continue
		}
		o := m.Of(n)
		if o.Variant == "" {
			continue
		}
		c := of(o.Variant)
		c.nodes++
		if o.Err != nil {
			c.failing++
			if c.why == "" {
				c.node, c.why = node, o.Err.Error()
			}
		}
		c.add(&o)
		if len(o.Resources)+len(o.Patched) > 0 && b.isScaledOn(s, node) {
			c.scaled++
			c.scaledOn = cmp.Or(c.scaledOn, node)
		}
		for _, name := range o.Tied {
			t := of(name)
			t.tied++
			t.with = o.Tied
		}
	}
	for name, err := range m.Check() {
		if c := of(name); c.why == "" {
			c.why = err.Error()
		}
	}
}

// isScaledOn reports whether a pod of a DaemonSet on a node is scaled by somebody else.
func (b *Book) isScaledOn(s *set, node string) bool {
	for uid := range s.pods[node] {
		if IsScaled(b.Objects.Pod(uid)) {
			return true
		}
	}
	return false
}

// add adds what a pod requests.
func (c *count) add(o *variant.Outcome) {
	if o.Err != nil {
		return
	}
	if c.requested == nil {
		c.requested = map[corev1.ResourceName]float64{}
	}
	for name, amount := range o.Requests() {
		c.requested[name] += amount
	}
}

// Reserved is what the pods request that a variant makes of a DaemonSet, in cores and bytes.
type Reserved struct {
	Namespace, DaemonSet, Variant string
	Requested                     map[corev1.ResourceName]float64
}

// Reserved returns it of all variants, as of the last time that statuses were looked at.
func (b *Book) Reserved() (out []Reserved) {
	for _, s := range b.sets {
		for name, c := range s.counts {
			out = append(out, Reserved{s.object.Namespace, s.object.Name, name, c.requested})
		}
	}
	return out
}

// maxMessage is the longest message of a condition, in bytes; the API takes no status with one of over 32 KiB.
const maxMessage = 1024

// describe writes what is so into a variant's status.
func (b *Book) describe(v *v1alpha1.DaemonSetVariant) {
	st := &v.Status
	st.ObservedGeneration, st.DaemonSets, st.Nodes = v.Generation, 0, 0
	var wrong, tied []string
	if err := b.wrong[v.UID]; err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, uid := range slices.Sorted(maps.Keys(b.sets)) {
		s := b.sets[uid]
		if s.object == nil || !variant.Selects(v, s.object) {
			continue
		}
		st.DaemonSets++
		made := ""
		if b.foreign(s) {
			made = "it follows no RolloutPolicy, so the API's own DaemonSet controller makes its pods by the template alone"
		}
		for _, why := range []string{made, s.refused, s.why, s.objects} {
			if why != "" {
				wrong = append(wrong, fmt.Sprintf("DaemonSet %s: %s", s.object.Name, why))
			}
		}
		c := s.counts[v.Name]
		if c == nil {
			continue
		}
		st.Nodes += int32(c.nodes)
		if c.why != "" {
			wrong = append(wrong, fmt.Sprintf("DaemonSet %s%s: %s", s.object.Name, where(c), c.why))
		}
		if c.scaled > 0 {
			wrong = append(wrong, fmt.Sprintf("DaemonSet %s on %s, such as %s: a VerticalPodAutoscaler gives the pods amounts: "+
				"resources is not followed for these, and of amounts in a patch what was written last counts; give a "+
				"DaemonSet one of the two", s.object.Name, nodes(c.scaled), c.scaledOn))
		}
		if c.tied > 0 {
			tied = append(tied, fmt.Sprintf("DaemonSet %s on %s: %s have the same priority", s.object.Name,
				nodes(c.tied), strings.Join(c.with, ", ")))
		}
	}
	say := func(kind, reason string, bad []string, good metav1.ConditionStatus, fine string) {
		status, message := good, fine
		if len(bad) > 0 {
			message = plaintext.Cut(strings.Join(bad, "; "), maxMessage, "…")
			status = metav1.ConditionTrue
			if good == metav1.ConditionTrue {
				status = metav1.ConditionFalse
			}
		} else {
			reason = "AsItShould"
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			Message: message, ObservedGeneration: v.Generation})
	}
	say(v1alpha1.VariantApplies, "CannotBeHad", wrong, metav1.ConditionTrue, "")
	say(v1alpha1.VariantConflict, "SamePriority", tied, metav1.ConditionFalse, "")
}

func where(c *count) string {
	if c.failing == 0 {
		return ""
	}
	if c.failing == 1 {
		return " on node " + c.node
	}
	return fmt.Sprintf(" on %s, such as %s", nodes(c.failing), c.node)
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// TellStatus takes in what became of the writing of a status: what the API holds of the variant then, or nil.
func (b *Book) TellStatus(asked, written *v1alpha1.DaemonSetVariant) {
	delete(b.writing, asked.UID)
	have := b.all[asked.UID]
	switch {
	case written == nil:
		b.again = b.now.Add(statusAgain)
	case have != nil && have.Generation == written.Generation:
		b.all[asked.UID] = written
	}
}
