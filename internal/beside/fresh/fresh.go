// Package fresh shares reads among those who ask for the same at one time. A read answers only those who asked before
// it began: so what anybody is told is no older than the question.
package fresh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reads are reads of what has a key. All who ask before a read of the key begins share it. The zero value is ready, and
// has one read of a key run at a time.
type Reads[K comparable, V any] struct {
	// Apart is the least time from the beginning of a read to that of the next one of the key.
	Apart time.Duration
	// Abreast is how many reads of a key may run at a time; 0 means 1.
	Abreast int

	mu   sync.Mutex
	keys map[K]*asked[V]
}

// asked are the reads of a key that run or wait.
type asked[V any] struct {
	slots chan struct{}
	began time.Time
	// next has not begun: nobody can share one that has. There are so many with those that have.
	next *result[V]
	all  int
}

// result is what comes of a read, once it is done.
type result[V any] struct {
	done  chan struct{}
	value V
	err   error
}

// errUnfinished says that a read ended its goroutine.
var errUnfinished = errors.New("the read has ended without a result")

// Calmly does a part of a read, and returns its panic as an error: one fault must not end the process.
func Calmly(part func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return part()
}

// Get returns what a read of the key returns that begins after Get was called: this one or that of another one who
// asks. That it panics is an error for all who share it. Get waits no longer than ctx lasts; the read, which has no end
// by its context, goes on for the others. Those who share what it returns must not change it.
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

// join returns the read that has not begun, after it has seen to it that there is one.
func (r *Reads[K, V]) join(key K, read func() (V, error)) *result[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[key]
	if k == nil {
		k = &asked[V]{slots: make(chan struct{}, max(r.Abreast, 1))}
		if r.keys == nil {
			r.keys = map[K]*asked[V]{}
		}
		r.keys[key] = k
	}
	if k.next == nil {
		k.next = &result[V]{done: make(chan struct{})}
		k.all++
		go r.run(key, k, k.next, read)
	}
	return k.next
}

func (r *Reads[K, V]) run(key K, k *asked[V], is *result[V], read func() (V, error)) {
	k.slots <- struct{}{}
	r.mu.Lock()
	last := k.began // no other one waits to begin, so that stays
	r.mu.Unlock()
	time.Sleep(time.Until(last.Add(r.Apart)))
	began := time.Now()
	r.mu.Lock()
	k.next, k.began = nil, began
	r.mu.Unlock()
	defer r.leave(key, k, began)
	is.take(read)
}

// take reads, and tells those who wait, whatever becomes of it.
func (is *result[V]) take(read func() (V, error)) {
	defer close(is.done)
	is.err = errUnfinished
	is.err = Calmly(func() (err error) {
		is.value, err = read()
		return err
	})
}

// leave makes room for the next read.
func (r *Reads[K, V]) leave(key K, k *asked[V], began time.Time) {
	<-k.slots
	time.Sleep(time.Until(began.Add(r.Apart))) // the next one must know when this began
	r.mu.Lock()
	defer r.mu.Unlock()
	k.all--
	if k.all == 0 {
		delete(r.keys, key)
	}
}
