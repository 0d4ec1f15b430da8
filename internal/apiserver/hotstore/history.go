package hotstore

import (
	"fmt"
	"sort"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// history is the last events, so that a watch that was cut off can go on.
type history struct {
	ring []*event
	// next is the position of the next event, first that of the oldest one kept.
	next, first uint64
	// listed is the revision of the list that began it, and complete whether all since is kept.
	listed   uint64
	complete bool
}

func newHistory(size int) *history { return &history{ring: make([]*event, size)} }

// begin forgets all events; they follow a list of that revision.
func (h *history) begin(revision uint64) {
	clear(h.ring)
	h.first, h.listed, h.complete = h.next, revision, true
}

func (h *history) add(e *event) {
	size := uint64(len(h.ring))
	if h.next-h.first == size {
		h.first++
		h.complete = false
	}
	h.ring[h.next%size] = e
	h.next++
}

// since returns the events after a revision, or that it is too long ago.
func (h *history) since(revision uint64) ([]*event, error) {
	size := uint64(len(h.ring))
	oldest := h.listed + 1
	if !h.complete {
		oldest = h.ring[h.first%size].revision
	}
	if revision < oldest-1 {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, oldest-1))
	}
	n := int(h.next - h.first)
	from := sort.Search(n, func(i int) bool { return h.ring[(h.first+uint64(i))%size].revision > revision })
	out := make([]*event, 0, n-from)
	for i := from; i < n; i++ {
		out = append(out, h.ring[(h.first+uint64(i))%size])
	}
	return out, nil
}
