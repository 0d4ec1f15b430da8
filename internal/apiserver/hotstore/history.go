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
	// from is the least revision after which all is kept.
	from uint64
}

func newHistory(size int) *history { return &history{ring: make([]*event, size)} }

// begin forgets all events; they follow a list of that revision.
func (h *history) begin(revision uint64) {
	clear(h.ring)
	h.first, h.from = h.next, revision
}

func (h *history) add(e *event) {
	size := uint64(len(h.ring))
	if h.next-h.first == size {
		h.from = h.ring[h.first%size].revision
		h.first++
	}
	h.ring[h.next%size] = e
	h.next++
}

// since returns the events after a revision, or that it is too long ago.
func (h *history) since(revision uint64) ([]*event, error) {
	if revision < h.from {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, h.from))
	}
	size := uint64(len(h.ring))
	n := int(h.next - h.first)
	at := func(i int) *event { return h.ring[(h.first+uint64(i))%size] }
	begin := sort.Search(n, func(i int) bool { return at(i).revision > revision })
	out := make([]*event, 0, n-begin)
	for i := begin; i < n; i++ {
		out = append(out, at(i))
	}
	return out, nil
}
