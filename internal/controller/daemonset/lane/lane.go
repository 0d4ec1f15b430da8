// Package lane has jobs done by workers, in the order in which they come.
package lane

import (
	"context"
	"sync"
	"time"
)

// Lane is a queue of jobs and the workers that take from it. How many jobs can
// be queued is bounded by who submits: the matrix limits what is in flight.
type Lane struct {
	mu      sync.Mutex
	arrived *sync.Cond
	queue   []func(context.Context)
	closed  bool
	done    sync.WaitGroup
	// longest is how long one job may take.
	longest time.Duration
}

// Start starts the workers. They stop, with what is queued left undone, when ctx ends; Wait waits for them. A job's
// context ends after so long.
func Start(ctx context.Context, workers int, longest time.Duration) *Lane {
	l := &Lane{longest: longest}
	l.arrived = sync.NewCond(&l.mu)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		l.arrived.Broadcast()
	})
	for range workers {
		l.done.Go(func() { l.work(ctx) })
	}
	return l
}

// Wait returns once all workers have stopped.
func (l *Lane) Wait() { l.done.Wait() }

// Submit puts a job at the end of the queue.
func (l *Lane) Submit(job func(context.Context)) {
	l.mu.Lock()
	l.queue = append(l.queue, job)
	l.mu.Unlock()
	l.arrived.Signal()
}

func (l *Lane) work(ctx context.Context) {
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.closed {
			l.arrived.Wait()
		}
		if l.closed {
			l.mu.Unlock()
			return
		}
		job := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.mu.Unlock()

		callCtx, cancel := context.WithTimeout(ctx, l.longest)
		job(callCtx)
		cancel()
	}
}
