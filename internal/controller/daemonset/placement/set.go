package placement

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// Revisions are the rules of earlier revisions, by hash. They do not change.
type Revisions struct {
	ByRevision map[string]*Rules
	// Gone is a revision, by its whole name, of which no pod can be made, whatever is known of its template; "" for none.
	Gone string `json:",omitempty"`
}

// Same reports whether both say the same.
func (r *Revisions) Same(o *Revisions) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Gone == o.Gone && maps.EqualFunc(r.ByRevision, o.ByRevision, (*Rules).Same)
}

// Set are the rules of all revisions of a DaemonSet that are known. It is comparable.
type Set struct {
	Newest  string // the revision of the present template
	Rules   *Rules // and its rules
	Earlier *Revisions
}

// Of returns the rules of a revision, nil if they are not known.
func (s *Set) Of(revision string) *Rules {
	switch {
	case s.Earlier != nil && revision != "" && revision == s.Earlier.Gone:
		return nil
	case revision == s.Newest, revision != "" && content.TemplateOf(revision) == content.TemplateOf(s.Newest):
		return s.Rules
	case s.Earlier == nil:
		return nil
	}
	return s.Earlier.ByRevision[content.TemplateOf(revision)]
}

// Eligible is what the rules of a revision say about a node, nil if there is none; occupied
// reports whether it has a pod. For a revision that cannot be read the rules of the newest stand in,
// so that a daemon which is missing shows; but pods that these do not want stay.
func (s *Set) Eligible(revision string, n *corev1.Node, occupied bool) Eligibility {
	own := s.Of(revision)
	r := cmp.Or(own, s.Rules)
	if n == nil || r == nil {
		return ShouldNotRun
	}
	eligibility, _ := r.Judge(n)
	if occupied && own == nil && eligibility == ShouldNotRun {
		return ShouldContinueRunning
	}
	return eligibility
}

// Selects reports whether the rules of a revision want a daemon on the node. A node that is
// only marked as out of order is still one of the fleet.
func (s *Set) Selects(revision string, n *corev1.Node, occupied bool) bool {
	switch s.Eligible(revision, n, occupied) {
	case ShouldRun:
		return true
	case ShouldContinueRunning:
		r := s.Of(revision)
		return r == nil || occupied && r.waitFor(n)
	}
	return false
}

// waitFor reports whether nothing but the node's silence keeps the DaemonSet away by rules that
// let a pod stay: the node is marked as not ready or unreachable, and in no other way.
func (p *Rules) waitFor(n *corev1.Node) bool {
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		marked := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		if !marked && t.Effect == corev1.TaintEffectNoSchedule && !p.tolerates(t) {
			return false
		}
	}
	return true
}
