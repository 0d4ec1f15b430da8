package hotstore

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
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

// departures are the last events by which an object left those that have its value of the trigger's field.
type departures struct {
	*history
	// valueOf is the value of an object; "" for none.
	valueOf func(*entry) string
}

func (d departures) add(e *event) {
	before := d.valueOf(e.previous)
	if before != "" && (e.object == nil || d.valueOf(e.object) != before) {
		d.history.add(e)
	}
}

// and returns, in the order of revisions, what has departed from a value since a revision, and those that have it now
// and were written since.
func (d departures) and(found []any, value string, since uint64, versioner storage.Versioner) ([]*event, error) {
	gone, err := d.history.since(since)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(gone, func(e *event) bool { return d.valueOf(e.previous) != value })
	for _, item := range found {
		element := item.(*store.Element)
		written, err := versioner.ObjectResourceVersion(entryOf(element).Object)
		if err != nil {
			return nil, fmt.Errorf("read the version of %s: %w", element.Key, err)
		}
		if written > since {
			out = append(out, &event{key: element.Key, revision: written, object: entryOf(element)})
		}
	}
	slices.SortStableFunc(out, func(a, b *event) int { return cmp.Compare(a.revision, b.revision) })
	return out, nil
}
