// Package reservations remembers for which pods, that nobody has seen yet, room is kept on a node, and until when.
package reservations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Book holds reservations. Call New.
type Book struct {
	lasts  time.Duration
	kept   map[types.UID]reservation
	byName map[string]types.UID
	// order is in which order they end; those that are not kept any more are still in it.
	order []ending
}

type reservation struct {
	name  string
	until time.Time
}

type ending struct {
	uid   types.UID
	until time.Time
}

// New returns an empty book of reservations that last so long, unless they are taken out before.
func New(lasts time.Duration) *Book {
	return &Book{lasts: lasts, kept: map[types.UID]reservation{}, byName: map[string]types.UID{}}
}

// Add puts a reservation in for a pod that will have the name. Times of one book do not go back.
func (b *Book) Add(uid types.UID, name string, now time.Time) {
	b.Remove(b.byName[name])
	until := now.Add(b.lasts)
	b.kept[uid], b.byName[name] = reservation{name, until}, uid
	b.order = append(b.order, ending{uid, until})
}

// Named returns for which pod of that name there is a reservation, "" for none. There is one of a name at most.
func (b *Book) Named(name string) types.UID { return b.byName[name] }

// Remove takes out the reservation of a pod that was seen, or that will not be. Others are no error.
func (b *Book) Remove(uid types.UID) {
	r, kept := b.kept[uid]
	if !kept {
		return
	}
	delete(b.kept, uid)
	delete(b.byName, r.name)
	b.forget()
}

// Due takes out those that have ended, and returns them.
func (b *Book) Due(now time.Time) (ended []types.UID) {
	for len(b.order) > 0 && !b.order[0].until.After(now) {
		uid := b.order[0].uid
		ended = append(ended, uid)
		b.Remove(uid)
	}
	return ended
}

// Next returns when the next one ends; false if there is none.
func (b *Book) Next() (time.Time, bool) {
	if len(b.order) == 0 {
		return time.Time{}, false
	}
	return b.order[0].until, true
}

// forget has the order begin with one that is kept.
func (b *Book) forget() {
	for len(b.order) > 0 {
		if _, kept := b.kept[b.order[0].uid]; kept {
			return
		}
		b.order = b.order[1:]
	}
	b.order = nil
}
