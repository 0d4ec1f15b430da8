package matrix

import (
	"container/heap"
	"time"
)

// deadline is the one timer of a cell or of a row.
type deadline struct {
	at    time.Time
	index int // place in the heap, plus one; 0 means not armed
	cell  *cell
	row   *row // set for a row's timer, nil for a cell's
}

// deadlines is a heap of armed deadlines, the earliest first.
type deadlines []*deadline

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i+1, j+1
}

// Push is part of heap.Interface.
func (d *deadlines) Push(x any) {
	t := x.(*deadline)
	*d = append(*d, t)
	t.index = len(*d)
}

// Pop is part of heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	t.index = 0
	return t
}

// set arms, moves or (with a zero time) disarms t.
func (d *deadlines) set(t *deadline, at time.Time) {
	switch {
	case at.IsZero() && t.index == 0, t.index > 0 && t.at.Equal(at):
	case at.IsZero():
		heap.Remove(d, t.index-1)
	case t.index == 0:
		t.at = at
		heap.Push(d, t)
	default:
		t.at = at
		heap.Fix(d, t.index-1)
	}
}

// due removes and returns the earliest deadline that is not after now, or nil.
func (d *deadlines) due(now time.Time) *deadline {
	if len(*d) == 0 || (*d)[0].at.After(now) {
		return nil
	}
	return heap.Pop(d).(*deadline)
}

// sooner returns the earlier of two times; the zero time means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
