// Package plan decides which pods nobody else will ever clean up.
package plan

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reason says why a pod goes.
type Reason uint8

// The reasons.
const (
	// NodeGone: the pod is bound to a node that does not exist.
	NodeGone Reason = iota + 1
	// NeverBound: the pod is being deleted and has no node whose agent could finish that.
	NeverBound
	// TooManyTerminated: the pod ended, and more ended ones are kept than allowed.
	TooManyTerminated
)

// String is the reason in words for logs.
func (r Reason) String() string {
	return [...]string{"", "its node is gone", "deleted before it got a node", "too many terminated pods"}[r]
}

// Config holds the limits. The zero value of a field means its default.
type Config struct {
	// Quarantine is how long after a node's deletion its pods stay, in case it registers again; 2 s.
	Quarantine time.Duration
	// UnknownQuarantine is the same for a node that was never seen; 40 s.
	UnknownQuarantine time.Duration
	// MaxTerminated is how many terminated pods are kept; 12500, none are removed if negative.
	MaxTerminated int
}

// Complete returns c with defaults filled in.
func (c Config) Complete() Config {
	if c.Quarantine == 0 {
		c.Quarantine = 2 * time.Second
	}
	if c.UnknownQuarantine == 0 {
		c.UnknownQuarantine = 40 * time.Second
	}
	if c.MaxTerminated == 0 {
		c.MaxTerminated = 12500
	}
	return c
}

// Doomed is a pod to delete by force.
type Doomed struct {
	Pod    *corev1.Pod
	Reason Reason
}

// Missing remembers since when nodes with pods have been missing. One owner at a time.
type Missing struct {
	cfg     Config
	since   map[string]time.Time
	deleted map[string]bool
}

// NewMissing makes an empty memory.
func NewMissing(cfg Config) *Missing {
	return &Missing{cfg: cfg.Complete(), since: map[string]time.Time{}, deleted: map[string]bool{}}
}

// NodeDeleted notes that a node's deletion was seen.
func (m *Missing) NodeDeleted(name string, now time.Time) {
	m.since[name] = now
	m.deleted[name] = true
}

// Suspect reports whether a sweep could find anything about the pod. Of all others it says
// nothing, and they need not be shown to it.
func Suspect(p *corev1.Pod, exists func(node string) bool) bool {
	if node := p.Spec.NodeName; node != "" {
		return !exists(node) || isTerminated(p)
	}
	return p.DeletionTimestamp != nil || isTerminated(p)
}

// Sweep looks at all pods. pods and exists are only read. next is when another sweep
// will find more to do without any news, zero if never.
func (m *Missing) Sweep(pods []*corev1.Pod, exists func(node string) bool,
	now time.Time) (doomed []Doomed, next time.Time) {
	var terminated []*corev1.Pod
	referred := map[string]bool{}
	for _, p := range pods {
		node := p.Spec.NodeName
		switch {
		case node == "" && p.DeletionTimestamp != nil:
			doomed = append(doomed, Doomed{p, NeverBound})
		case node != "" && !exists(node):
			referred[node] = true
			due := m.due(node, now)
			if !due.After(now) {
				doomed = append(doomed, Doomed{p, NodeGone})
			} else if next.IsZero() || due.Before(next) {
				next = due
			}
		case isTerminated(p):
			terminated = append(terminated, p)
		}
	}
	for node := range m.since {
		if !referred[node] {
			delete(m.since, node)
			delete(m.deleted, node)
		}
	}
	return append(doomed, m.surplus(terminated)...), next
}

// due is when the pods of a missing node go.
func (m *Missing) due(node string, now time.Time) time.Time {
	since, known := m.since[node]
	if !known {
		since = now
		m.since[node] = now
	}
	if m.deleted[node] {
		return since.Add(m.cfg.Quarantine)
	}
	return since.Add(m.cfg.UnknownQuarantine)
}

// surplus are the terminated pods over the limit: evicted ones first, then the oldest.
func (m *Missing) surplus(terminated []*corev1.Pod) []Doomed {
	surplus := len(terminated) - m.cfg.MaxTerminated
	if m.cfg.MaxTerminated < 0 || surplus <= 0 {
		return nil
	}
	slices.SortFunc(terminated, func(a, b *corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(evictedRank(a), evictedRank(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
	var doomed []Doomed
	for _, p := range terminated[:surplus] {
		doomed = append(doomed, Doomed{p, TooManyTerminated})
	}
	return doomed
}

func evictedRank(p *corev1.Pod) int {
	if p.Status.Reason == "Evicted" {
		return 0
	}
	return 1
}

func isTerminated(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodRunning &&
		p.Status.Phase != corev1.PodUnknown &&
		p.Status.Phase != ""
}
