package variant

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
	expr "github.com/everynode/everynode/internal/change/variant/formula"
)

// Variant is what a DaemonSetVariant says of nodes. It is what is stored of one.
type Variant struct {
	Name      string                               `json:"name"`
	Nodes     *metav1.LabelSelector                `json:"nodes,omitempty"`
	Priority  int32                                `json:"priority,omitempty"`
	Patch     json.RawMessage                      `json:"patch,omitempty"`
	Resources map[string]v1alpha1.VariantResources `json:"resources,omitempty"`
}

// Of reads a DaemonSetVariant.
func Of(v *v1alpha1.DaemonSetVariant) Variant {
	out := Variant{Name: v.Name, Nodes: v.Spec.Nodes, Priority: v.Spec.Priority, Resources: v.Spec.Resources}
	if v.Spec.Patch != nil {
		out.Patch = v.Spec.Patch.Raw
	}
	return out
}

// Set are the variants of one DaemonSet.
type Set struct {
	// ID is a short name of all of them, and Digest a long one.
	ID, Digest string
	Variants   []Variant // by name
	compiled   []compiled
}

// compiled is a variant that was read; err says why it cannot be.
type compiled struct {
	nodes    labels.Selector
	formulas []amount
	err      error
}

// amount is one amount of a container, and what it is computed by.
type amount struct {
	container string
	limit     bool
	name      corev1.ResourceName
	*expr.Formula
}

// at names the formula for people.
func (f *amount) at() string {
	kind := "requests"
	if f.limit {
		kind = "limits"
	}
	return fmt.Sprintf("resources.%s.%s.%s", f.container, kind, f.name)
}

// alphabet has no vowels and nothing that looks like something else: an ID is no word.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

// digits is how long an ID is.
const digits = 10

// NewSet reads the variants of a DaemonSet. Without any it is nil.
func NewSet(of []Variant) (*Set, error) {
	if len(of) == 0 {
		return nil, nil
	}
	if n := len(of); n > MaxVariants {
		return nil, fmt.Errorf("%d variants choose it, at most %d may", n, MaxVariants)
	}
	s := &Set{Variants: slices.Clone(of)}
	slices.SortFunc(s.Variants, func(a, b Variant) int { return cmp.Compare(a.Name, b.Name) })
	for i := range s.Variants {
		s.compiled = append(s.compiled, compile(&s.Variants[i]))
	}
	text, err := s.Text()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	s.Digest = "sha256:" + hex.EncodeToString(sum[:])
	id := make([]byte, digits)
	for i := range id {
		id[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	s.ID = string(id)
	return s, nil
}

// Text is what is stored of the set: the same text for the same variants.
func (s *Set) Text() ([]byte, error) {
	plain := slices.Clone(s.Variants)
	for i := range plain {
		if len(plain[i].Patch) == 0 {
			continue
		}
		// With its keys in order: how it was written does not matter.
		patch, err := decode[any](plain[i].Patch)
		if err != nil {
			return nil, fmt.Errorf("read the patch of variant %s: %w", plain[i].Name, err)
		}
		text, err := json.Marshal(patch)
		if err != nil {
			return nil, fmt.Errorf("write the patch of variant %s: %w", plain[i].Name, err)
		}
		plain[i].Patch = text
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("write variants: %w", err)
	}
	return text, nil
}

// Read is the opposite of Text.
func Read(text []byte) (*Set, error) {
	var all []Variant
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("read stored variants: %w", err)
	}
	return NewSet(all)
}

func compile(v *Variant) (c compiled) {
	c.nodes, c.err = selector(v.Nodes)
	if c.err != nil {
		return c
	}
	for container, r := range v.Resources {
		for _, kind := range []struct {
			limit bool
			of    map[corev1.ResourceName]string
		}{{false, r.Requests}, {true, r.Limits}} {
			for name, text := range kind.of {
				f := amount{container: container, limit: kind.limit, name: name}
				f.Formula, c.err = expr.Compile(text)
				if c.err != nil {
					c.err = fmt.Errorf("%s %w", f.at(), c.err)
					return c
				}
				c.formulas = append(c.formulas, f)
			}
		}
	}
	slices.SortFunc(c.formulas, func(a, b amount) int { return cmp.Compare(a.at(), b.at()) })
	return c
}

// selector reads one that chooses all if it is empty.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// Selects reports whether a variant chooses a DaemonSet. One whose selector cannot be read, which is not stored,
// chooses none.
func Selects(v *v1alpha1.DaemonSetVariant, ds *appsv1.DaemonSet) bool {
	s, err := selector(v.Spec.DaemonSets)
	return err == nil && v.DeletionTimestamp == nil && v.Namespace == ds.Namespace && s.Matches(labels.Set(ds.Labels))
}

// Choosing are the variants that choose a DaemonSet. The error names the first of them that is not to be used, by what
// check says of it.
func Choosing(
	all iter.Seq[*v1alpha1.DaemonSetVariant], ds *appsv1.DaemonSet, check func(*v1alpha1.DaemonSetVariant) error,
) (out []Variant, bad error) {
	first := ""
	for v := range all {
		if !Selects(v, ds) {
			continue
		}
		out = append(out, Of(v))
		if err := check(v); err != nil && (bad == nil || v.Name < first) {
			first, bad = v.Name, fmt.Errorf("DaemonSetVariant %s: %w", v.Name, err)
		}
	}
	return out, bad
}

// choose returns the variants of the highest priority that choose a node, by their place: none, one, or several that
// are in conflict.
func (s *Set) choose(node map[string]string) (out []int) {
	for i := range s.Variants {
		if c := &s.compiled[i]; c.nodes == nil || !c.nodes.Matches(labels.Set(node)) {
			continue
		}
		if len(out) > 0 && s.Variants[out[0]].Priority > s.Variants[i].Priority {
			continue
		}
		if len(out) > 0 && s.Variants[out[0]].Priority < s.Variants[i].Priority {
			out = out[:0]
		}
		out = append(out, i)
	}
	return out
}
