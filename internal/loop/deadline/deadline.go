// Package deadline keeps timers in the order in which they end, for pure code
// that is told what time it is.
package deadline

import (
	"container/heap"
	"time"
)

// Sooner returns the earlier of two times; the zero time means never.
func Sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Ahead is a time that is still to come; the zero time if it is not.
func Ahead(t, now time.Time) time.Time {
	if t.After(now) {
		return t
	}
	return time.Time{}
}

// Past is a time that some clock gave, or now if that is sooner. It is by the clock that now is of, and goes on with
// that when somebody sets the one on the wall. The zero time stays.
func Past(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(min(t.Sub(now), 0))
}

// Timer is one timer of an Owner. Its zero value but for the Owner is ready to
// be set. It must not be copied while it is armed.
type Timer[T any] struct {
	Owner T
	at    time.Time
	index int // place in the heap, plus one; 0 means not armed
}

// Armed reports whether the timer has been set and has not ended yet.
func (t *Timer[T]) Armed() bool { return t.index > 0 }

// At is when the timer was last set to end.
func (t *Timer[T]) At() time.Time { return t.at }

// Timers holds armed timers. Its zero value is empty. Setting, stopping and
// ending one costs O(log n), looking at the earliest O(1). One owner at a time.
type Timers[T any] struct{ heap timers[T] }

// Set arms the timer for a time, or moves it there. The zero time stops it.
func (h *Timers[T]) Set(t *Timer[T], at time.Time) {
	switch {
	case at.IsZero():
		h.Stop(t)
	case !t.Armed():
		t.at = at
		heap.Push(&h.heap, t)
	case !t.at.Equal(at):
		t.at = at
		heap.Fix(&h.heap, t.index-1)
	}
}

// Stop disarms the timer, if it is armed.
func (h *Timers[T]) Stop(t *Timer[T]) {
	if t.Armed() {
		heap.Remove(&h.heap, t.index-1)
	}
}

// Len is how many timers are armed.
func (h *Timers[T]) Len() int { return len(h.heap) }

// Next is when the earliest timer ends; false if none is armed.
func (h *Timers[T]) Next() (time.Time, bool) {
	if len(h.heap) == 0 {
		return time.Time{}, false
	}
	return h.heap[0].at, true
}

// Due reports whether a timer ends at now or before.
func (h *Timers[T]) Due(now time.Time) bool {
	return len(h.heap) > 0 && !h.heap[0].at.After(now)
}

// Pop disarms and returns the earliest timer that ends at now or before; nil if
// there is none.
func (h *Timers[T]) Pop(now time.Time) *Timer[T] {
	if !h.Due(now) {
		return nil
	}
	return heap.Pop(&h.heap).(*Timer[T])
}

// timers is a binary heap, the earliest first.
type timers[T any] []*Timer[T]

func (h timers[T]) Len() int           { return len(h) }
func (h timers[T]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push is part of heap.Interface.
func (h *timers[T]) Push(x any) {
	t := x.(*Timer[T])
	*h = append(*h, t)
	t.index = len(*h)
}

// Pop is part of heap.Interface.
func (h *timers[T]) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = 0
	return t
}
