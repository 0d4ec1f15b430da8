package proxy

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// late is how old news may become before they are in the rules, for the proxy to
// count as healthy.
const late = time.Minute

// leaving marks a node that an autoscaler is about to remove.
const leaving = "ToBeDeletedByClusterAutoscaler"

// progress knows whether the rules keep up with the news. Before the first news they
// do.
type progress struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// written is when the rules were last brought up to date. heard is when the oldest
	// news came that nobody has taken yet, taken that of those being written; zero for
	// none.
	written, heard, taken time.Time
	// leaves says that the node is about to go.
	leaves bool
}

// news came.
func (p *progress) news() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.heard.IsZero() {
		p.heard = p.clock.Now()
	}
}

// take is the begin of writing all news.
func (p *progress) take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken.IsZero() {
		p.taken = p.heard
	}
	p.heard = time.Time{}
}

// done is the end of it.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written, p.taken = p.clock.Now(), time.Time{}
}

// node takes what the node is now.
func (p *progress) node(node *corev1.Node) {
	leaves := node.DeletionTimestamp != nil
	for _, taint := range node.Spec.Taints {
		leaves = leaves || taint.Key == leaving
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaves = leaves
}

// state is what is told of the progress.
type state struct {
	now, written time.Time
	// keepsUp says that no news are late; stays that the node is not about to go.
	keepsUp, stays bool
}

func (p *progress) state() state {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now().Round(0)
	oldest := p.taken
	if oldest.IsZero() {
		oldest = p.heard
	}
	s := state{now: now, written: p.written.Round(0), keepsUp: oldest.IsZero() || now.Sub(oldest) < late, stays: !p.leaves}
	if s.keepsUp {
		s.written = now // nothing has changed since
	}
	return s
}
