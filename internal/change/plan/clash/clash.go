// Package clash finds the nodes on which a DaemonSet's variants are in conflict, or cannot be had. It is pure.
package clash

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/variant"
)

// Found is what was found of one DaemonSet.
type Found struct {
	Conflicts []Conflict `json:"conflicts,omitempty"`
	Failures  []Failure  `json:"failures,omitempty"`
}

// Conflict is nodes that several variants of the highest priority choose.
type Conflict struct {
	Variants []string `json:"variants"`
	Nodes    []string `json:"nodes"`
	Ends
}

// Failure is nodes on which the variant that chooses them cannot be had. It has none where the variant chooses none.
type Failure struct {
	Variant string `json:"variant"`
	// Why is the reason of the first node.
	Why   string   `json:"why"`
	Nodes []Reason `json:"nodes,omitempty"`
	Ends
}

// Reason is why a variant cannot be had on a node.
type Reason struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// Ends counts nodes by what they have in the end.
type Ends struct {
	// Keep have the pod of before, Given another, their first one, or theirs with other amounts, and None have no pod.
	Keep  int `json:"keep,omitempty"`
	Given int `json:"given,omitempty"`
	None  int `json:"none,omitempty"`
}

// End is what a node has in the end.
type End uint8

const (
	// Keeps is the pod of before.
	Keeps End = iota
	// Given is another pod, a first one, or other amounts.
	Given
	// None is no pod.
	None
)

func (e *Ends) add(end End) {
	switch end {
	case Keeps:
		e.Keep++
	case Given:
		e.Given++
	case None:
		e.None++
	}
}

// Find looks at the nodes on which the DaemonSet is to run. Ends says what each has in the end.
func Find(molds *variant.Molds, nodes []*corev1.Node, ends func(node string) End) Found {
	conflicts, failures := map[string]*Conflict{}, map[string]*Failure{}
	for _, n := range nodes {
		is := variant.OfNode(n)
		o := molds.Of(&is)
		if len(o.Tied) > 0 {
			c := entry(conflicts, strings.Join(o.Tied, " "))
			c.Variants, c.Nodes = o.Tied, append(c.Nodes, n.Name)
			c.add(ends(n.Name))
		}
		if o.Err != nil {
			f, why := entry(failures, o.Variant), strings.TrimPrefix(o.Err.Error(), "variant "+o.Variant+": ")
			f.Variant, f.Why = o.Variant, cmp.Or(f.Why, why)
			f.Nodes = append(f.Nodes, Reason{n.Name, why})
			f.add(ends(n.Name))
		}
	}
	for name, err := range molds.Check() {
		if failures[name] == nil {
			failures[name] = &Failure{Variant: name, Why: err.Error()}
		}
	}
	return Found{inOrder(conflicts), inOrder(failures)}
}

// entry is that of a key, which it gets if it has none.
func entry[T any](of map[string]*T, key string) *T {
	if of[key] == nil {
		of[key] = new(T)
	}
	return of[key]
}

func inOrder[T any](of map[string]*T) (out []T) {
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, *of[key])
	}
	return out
}

// Write writes it for people.
func (f *Found) Write(w io.Writer) {
	for _, c := range f.Conflicts {
		line := fmt.Sprintf("Conflict of variants %s on %s: they have the same priority. %s",
			strings.Join(c.Variants, ", "), some(c.Nodes), c.words("get that of "+c.Variants[0]))
		fmt.Fprint(w, survey.Wrap(line, ""))
	}
	for _, fails := range f.Failures {
		var nodes []string
		for _, n := range fails.Nodes {
			nodes = append(nodes, n.Node)
		}
		line := fmt.Sprintf("Variant %s fails on %s: %s. %s", fails.Variant, some(nodes), fails.Why,
			fails.words("get another"))
		if len(nodes) == 0 {
			line = fmt.Sprintf("Variant %s would fail on each node, and chooses none: %s.", fails.Variant, fails.Why)
		}
		fmt.Fprint(w, survey.Wrap(line, ""))
	}
}

// shownNodes is how many nodes are named for people.
const shownNodes = 3

// some says how many nodes there are, and names the first.
func some(nodes []string) string {
	text := survey.Count(len(nodes), "node")
	if len(nodes) > shownNodes {
		return text + ", such as " + strings.Join(nodes[:shownNodes], ", ") + " (-o json lists all)"
	}
	return text + " (" + strings.Join(nodes, ", ") + ")"
}

// words says what becomes of the nodes.
func (e *Ends) words(given string) string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{e.Keep, "keep the pod that they have"}, {e.Given, given}, {e.None, "have none and get none"}} {
		if part.n > 0 {
			parts = append(parts, survey.Number(part.n)+" "+part.what)
		}
	}
	return strings.Join(parts, ", ") + "."
}
