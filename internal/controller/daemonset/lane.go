package daemonset

import (
	"context"
	"sync"
)

// lane is a queue of jobs and the workers that take from it. How many jobs can
// be queued is bounded by who submits: the matrix limits what is in flight.
type lane struct {
	mu      sync.Mutex
	arrived *sync.Cond
	queue   []func(context.Context)
	closed  bool
	done    sync.WaitGroup
}

// startLane starts the workers. They stop, with what is queued left undone, when
// ctx ends; wait for them with l.done.Wait.
func startLane(ctx context.Context, workers int) *lane {
	l := &lane{}
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

func (l *lane) submit(job func(context.Context)) {
	l.mu.Lock()
	l.queue = append(l.queue, job)
	l.mu.Unlock()
	l.arrived.Signal()
}

func (l *lane) work(ctx context.Context) {
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

		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		job(callCtx)
		cancel()
	}
}
