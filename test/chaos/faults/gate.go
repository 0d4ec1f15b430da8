// Package faults stands between a control loop and its API, and makes what comes
// through late, reordered, repeated, refused or lost, within what the API
// promises: events of one object never go back except by a list read again, a
// write that was refused was not done, and one without an answer may have been.
package faults

import (
	"context"
	"sync"
)

// Dice decide. IntN returns a number from 0 to n-1.
type Dice interface{ IntN(n int) int }

// Gate lets everything through until it is closed. The zero value is open.
type Gate struct {
	mu     sync.Mutex
	closed chan struct{}
}

// Close holds up who comes from now on.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

// Open lets go who waits.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

// Wait returns when the gate is open, or with the error of a context that ended.
func (g *Gate) Wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		closed := g.closed
		g.mu.Unlock()
		if closed == nil {
			return ctx.Err()
		}
		select {
		case <-closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
