package variants

import (
	"errors"
	"maps"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant"
)

// TellUnread says why variants cannot be read now; "" once all have been read. Until then a DaemonSet that has variants
// keeps those, and one that has none is looked after without.
func (b *Book) TellUnread(why string) {
	if b.unread == why {
		return
	}
	b.unread = why
	b.version++
	b.moved = true
	for uid, s := range b.sets {
		if s.object != nil {
			b.dirty[uid] = true
		}
	}
}

// foreign reports whether another controller makes the pods of a DaemonSet and nobody says what they are to be like.
func (b *Book) foreign(s *set) bool { return b.Guest && !s.followed }

// choose returns the variants of a DaemonSet as they are now. The error says why they cannot be used.
func (b *Book) choose(s *set) (*variant.Set, error) {
	switch {
	case b.foreign(s):
		return nil, nil
	case b.unread != "" && (s.newest != nil || len(s.known) > 0):
		return nil, errors.New(b.unread)
	case b.unread != "":
		return nil, nil
	}
	of, err := variant.Choosing(maps.Values(b.all), s.object, func(v *v1alpha1.DaemonSetVariant) error {
		return b.wrong[v.UID]
	})
	if err != nil {
		return nil, err
	}
	return variant.NewSet(of)
}
