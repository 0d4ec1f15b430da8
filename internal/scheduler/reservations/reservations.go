// Package reservations remembers for which pods, that nobody has seen yet, room is kept on a node, and until when.
package reservations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Book holds reservations of rooms. Call New.
//
// Of pods of one name only one can exist. So the room of one that may be stored is that of the next try of its name,
// and its own again once that try was refused.
type Book[Room any] struct {
	lasts time.Duration
	kept  map[types.UID]reservation[Room]
	// newest is the last that was made for a name.
	newest map[string]types.UID
	// order is in which order they end; those that are not kept any more are still in it.
	order []ending
}

type reservation[Room any] struct {
	name  string
	room  Room
	until time.Time
	// earlier was made for the name before; it may be over.
	earlier types.UID
}

type ending struct {
	uid   types.UID
	until time.Time
}

// New returns an empty book of reservations that last so long, unless they are taken out before.
func New[Room any](lasts time.Duration) *Book[Room] {
	return &Book[Room]{lasts: lasts, kept: map[types.UID]reservation[Room]{}, newest: map[string]types.UID{}}
}

// Add puts a reservation in for a pod that will have the name, in place of the one of that name. Times of one book do
// not go back.
func (b *Book[Room]) Add(uid types.UID, name string, room Room, now time.Time) {
	until := now.Add(b.lasts)
	b.kept[uid] = reservation[Room]{name, room, until, b.newest[name]}
	b.newest[name] = uid
	b.order = append(b.order, ending{uid, until})
}

// Named returns for which pod of that name room is kept, "" for none, and the room.
func (b *Book[Room]) Named(name string) (types.UID, Room) {
	uid := b.newest[name]
	return uid, b.kept[uid].room
}

// Seen takes out the reservation of a pod that was seen, and those that were made for its name before. Others are no
// error.
func (b *Book[Room]) Seen(uid types.UID) {
	for r, kept := b.kept[uid]; kept; r, kept = b.kept[uid] {
		delete(b.kept, uid)
		if b.newest[r.name] == uid {
			delete(b.newest, r.name)
		}
		uid = r.earlier
	}
	b.forget()
}

// Refused takes out the reservation of a pod that will not be. If it was in the place of another one, which may still
// be seen, that one is there again, and is returned. Others are no error.
func (b *Book[Room]) Refused(uid types.UID) (again types.UID, room Room) {
	r, kept := b.kept[uid]
	if !kept {
		return "", room
	}
	delete(b.kept, uid)
	defer b.forget()
	earlier, some := b.kept[r.earlier]
	switch {
	case b.newest[r.name] != uid:
		b.relink(uid, &r)
		return "", room
	case !some:
		delete(b.newest, r.name)
		return "", room
	}
	b.newest[r.name] = r.earlier
	return r.earlier, earlier.room
}

// relink has the one that is in the place of another be in that of the one before.
func (b *Book[Room]) relink(gone types.UID, was *reservation[Room]) {
	for uid := b.newest[was.name]; ; {
		r, kept := b.kept[uid]
		if !kept {
			return
		}
		if r.earlier == gone {
			r.earlier = was.earlier
			b.kept[uid] = r
			return
		}
		uid = r.earlier
	}
}

// Due takes out those that have ended, and returns them.
func (b *Book[Room]) Due(now time.Time) (ended []types.UID) {
	for len(b.order) > 0 && !b.order[0].until.After(now) {
		uid := b.order[0].uid
		ended = append(ended, uid)
		b.Seen(uid)
	}
	return ended
}

// Next returns when the next one ends; false if there is none.
func (b *Book[Room]) Next() (time.Time, bool) {
	if len(b.order) == 0 {
		return time.Time{}, false
	}
	return b.order[0].until, true
}

// forget has the order begin with one that is kept.
func (b *Book[Room]) forget() {
	for len(b.order) > 0 {
		if _, kept := b.kept[b.order[0].uid]; kept {
			return
		}
		b.order = b.order[1:]
	}
	b.order = nil
}
