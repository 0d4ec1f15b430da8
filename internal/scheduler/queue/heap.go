package queue

import "time"

// itemHeap is a container/heap of items that know their index.
type itemHeap struct {
	items []*item
	less  func(a, b *item) bool
}

func (h *itemHeap) Len() int           { return len(h.items) }
func (h *itemHeap) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

func (h *itemHeap) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].index, h.items[j].index = i, j
}

// Push is for container/heap.
func (h *itemHeap) Push(x any) {
	pushed := x.(*item)
	pushed.index = len(h.items)
	h.items = append(h.items, pushed)
}

// Pop is for container/heap.
func (h *itemHeap) Pop() any {
	last := h.items[len(h.items)-1]
	h.items[len(h.items)-1] = nil
	h.items = h.items[:len(h.items)-1]
	return last
}

// byPriority puts the higher priority first, then the one that came in earlier.
func byPriority(a, b *item) bool {
	if a.pod.Priority != b.pod.Priority {
		return a.pod.Priority > b.pod.Priority
	}
	return earlier(a, b, a.since, b.since)
}

// earlier orders by time; the order of arrival decides between equal times.
func earlier(a, b *item, atA, atB time.Time) bool {
	if !atA.Equal(atB) {
		return atA.Before(atB)
	}
	return a.sequence < b.sequence
}
