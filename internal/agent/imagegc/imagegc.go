// Package imagegc decides which images a node removes when its disk fills up. It is pure: images and the time come in,
// images to remove go out.
//
// An image that a container uses, dead or alive, or that the runtime pins, stays. Of the others those go first that
// were not used for the longest time, until enough is free. An image that came a moment ago stays, because its
// container may be about to start. Images that nobody has used for very long can go whatever the disk is like.
package imagegc

import (
	"cmp"
	"slices"
	"time"
)

// Image is one image on the node.
type Image struct {
	ID string
	// Size is in bytes.
	Size int64
	// Keep says that the image must stay: it is in use or pinned.
	Keep bool
}

// Memory remembers when images came and when they were last used. The zero value is a node that was just started:
// images that it finds at first are old.
type Memory struct {
	seen map[string]history
	// began is when there was the first look.
	began time.Time
}

type history struct{ came, used time.Time }

// Note takes in which images there are.
func (m *Memory) Note(images []Image, now time.Time) {
	if m.began.IsZero() {
		m.began = now
	}
	next := make(map[string]history, len(images))
	for _, i := range images {
		h, ok := m.seen[i.ID]
		if !ok && m.seen != nil {
			h.came = now
		}
		if i.Keep {
			h.used = now
		}
		next[i.ID] = h
	}
	m.seen = next
}

// Choose returns the images to remove to get want bytes, in this order; all that may go if that is not enough. Images
// younger than minAge stay.
func (m *Memory) Choose(images []Image, want int64, minAge time.Duration, now time.Time) []Image {
	candidates := slices.DeleteFunc(slices.Clone(images), func(i Image) bool {
		return i.Keep || now.Sub(m.seen[i.ID].came) < minAge
	})
	slices.SortFunc(candidates, func(a, b Image) int {
		return cmp.Or(
			m.seen[a.ID].used.Compare(m.seen[b.ID].used), m.seen[a.ID].came.Compare(m.seen[b.ID].came), cmp.Compare(a.ID, b.ID),
		)
	})
	for n, i := range candidates {
		if want <= 0 {
			return candidates[:n]
		}
		want -= i.Size
	}
	return candidates
}

// Old returns the images that nobody has used for that long. How long it was before the first look, nobody knows.
func (m *Memory) Old(images []Image, unused time.Duration, now time.Time) []Image {
	return slices.DeleteFunc(slices.Clone(images), func(i Image) bool {
		h := m.seen[i.ID]
		last := slices.MaxFunc([]time.Time{m.began, h.came, h.used}, time.Time.Compare)
		return i.Keep || now.Sub(last) < unused
	})
}

// Want is how many bytes to free: none below the high mark of use, else down to the low one. Marks are percentages of
// capacity.
func Want(available, capacity int64, high, low int) int64 {
	if capacity <= 0 || 100-int(available*100/capacity) < high {
		return 0
	}
	return capacity*int64(100-low)/100 - available
}
