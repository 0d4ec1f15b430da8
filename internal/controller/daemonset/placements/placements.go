// Package placements tells other control loops by which rules nodes get daemons. Where a policy is followed these are
// not always those of the present template, and the DaemonSet controller alone knows how far a change has come.
package placements

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Decisions are the DaemonSet controller's.
type Decisions interface {
	// RulesOn returns the rules by which a node gets a daemon, or gets none; nil if one of both is not known.
	RulesOn(daemonSet types.UID, node string) *placement.Rules
	// Apart reports whether these may be others than those of the newest template, and as of which generation of the
	// DaemonSet that is so; false if it is not known.
	Apart(daemonSet types.UID) (generation int64, apart, known bool)
}

// Board is where questions are written that the controller answers in its next turn, and what needs no question. It is
// safe for concurrent use, and nil where nobody asks. Call New.
type Board struct {
	mu     sync.Mutex
	wake   func()
	sets   map[types.UID]set
	asking []question
}

// set is a DaemonSet that a NodeStartup lists, as of a generation.
type set struct {
	generation int64
	apart      bool
}

type question struct {
	set    types.UID
	node   string
	answer chan<- *placement.Rules
}

// New returns a board of a controller that does not work yet.
func New() *Board { return &Board{wake: func() {}} }

// Wakes says what has the controller take its next turn.
func (b *Board) Wakes(wake func()) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake = wake
}

// Answer is called by the controller at the end of each turn, with the DaemonSets that NodeStartups list.
func (b *Board) Answer(listed []types.UID, by Decisions) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sets = map[types.UID]set{}
	for _, uid := range listed {
		if generation, apart, known := by.Apart(uid); known {
			b.sets[uid] = set{generation, apart}
		}
	}
	for _, q := range b.asking {
		q.answer <- by.RulesOn(q.set, q.node)
	}
	b.asking = nil
}

// RulesOn returns the rules of the revision that a node is to have of a DaemonSet; nil for those of its present
// template. Known is false as long as the controller has not decided about this DaemonSet as it is now, or that node.
func (b *Board) RulesOn(ctx context.Context, ds *appsv1.DaemonSet,
	node string) (rules *placement.Rules, known bool) {
	answer, known := b.ask(ds, node)
	if answer == nil {
		return nil, known
	}
	select {
	case rules = <-answer:
		return rules, rules != nil
	case <-ctx.Done():
		return nil, false
	}
}

// ask returns where the answer will be; nil if there need be none, or can be none yet.
func (b *Board) ask(ds *appsv1.DaemonSet, node string) (answer <-chan *placement.Rules, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is, told := b.sets[ds.UID]
	switch {
	case !told || is.generation < ds.Generation:
		return nil, false
	case !is.apart: // which is nearly always so: no turn need be waited for
		return nil, true
	}
	got := make(chan *placement.Rules, 1)
	b.asking = append(b.asking, question{ds.UID, node, got})
	b.wake()
	return got, false
}
