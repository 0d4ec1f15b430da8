// Package fresh shares reads among those who ask for the same at one time. A read answers only those who asked before
// it began: so what anybody is told is no older than the question.
package fresh

import (
	"context"
	"sync"
	"time"
)

// Reads are reads of what has a key. Of each key one runs at a time, and all who ask meanwhile share the next one. The
// zero value is ready.
type Reads[K comparable, V any] struct {
	// Apart is the least time from the beginning of a read to that of the next one of the key.
	Apart time.Duration

	mu sync.Mutex
	// runs has begun, and next has not: whoever asks can share only the latter.
	runs, next map[K]*result[V]
}

// result is what comes of a read, once it is done.
type result[V any] struct {
	read  func() (V, error)
	done  chan struct{}
	value V
	err   error
}

// Get returns what a read of the key returns that begins after Get was called: this one or that of another one who
// asks. It waits no longer than ctx lasts; the read, which has no end by its context, goes on for the others. Those who
// share what it returns must not change it.
func (r *Reads[K, V]) Get(ctx context.Context, key K, read func(context.Context) (V, error)) (V, error) {
	is := r.join(key, func() (V, error) { return read(context.WithoutCancel(ctx)) })
	select {
	case <-is.done:
		return is.value, is.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

func (r *Reads[K, V]) join(key K, read func() (V, error)) *result[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs, r.next = map[K]*result[V]{}, map[K]*result[V]{}
	}
	is := &result[V]{read: read, done: make(chan struct{})}
	switch {
	case r.runs[key] == nil:
		r.runs[key] = is
		go r.run(key, is)
	case r.next[key] == nil:
		r.next[key] = is
	default:
		is = r.next[key]
	}
	return is
}

// run reads until nobody waits for another read.
func (r *Reads[K, V]) run(key K, is *result[V]) {
	for is != nil {
		began := time.Now()
		is.value, is.err = is.read()
		close(is.done)
		time.Sleep(r.Apart - time.Since(began))
		is = r.begin(key)
	}
}

// begin lets the next read of a key begin, and returns it: nil if nobody waits for one.
func (r *Reads[K, V]) begin(key K) *result[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.next[key]
	delete(r.next, key)
	if is == nil {
		delete(r.runs, key)
	} else {
		r.runs[key] = is
	}
	return is
}
