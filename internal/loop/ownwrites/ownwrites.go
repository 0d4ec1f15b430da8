// Package ownwrites lets a controller read its own writes: it remembers what the
// controller created, updated and deleted until the cache that it reads from
// shows it. A decision made on Overlay is never made on a state from before the
// controller's last write, so nothing is created or deleted twice.
package ownwrites

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/objects/objectversion"
)

// forget is how long the cache may take to show a write. After that it never
// will: the object came and went while the cache was cut off.
const forget = 5 * time.Minute

// Log is what a controller wrote, by owner of the objects. It may be used by
// many goroutines; one owner is looked after by one of them at a time.
type Log[T metav1.Object] struct {
	clock clock.PassiveClock

	mu     sync.Mutex // guards all below
	owners map[types.UID]map[types.UID]entry[T]
	holder map[types.UID]types.UID // object to owner
	// Writes are numbered. Those from first to last are under way, but for those in ended.
	first, last uint64
	ended       map[uint64]bool
	// gone are the objects that left the cache while something was written, with the last write that may still tell
	// of them; leaving has them in the order in which they left.
	gone    map[types.UID]uint64
	leaving []leaver
}

type leaver struct {
	object types.UID
	last   uint64
}

type entry[T metav1.Object] struct {
	object  T
	created bool // the cache has not shown it at all yet
	deleted bool
	at      time.Time
}

// New returns an empty log.
func New[T metav1.Object](c clock.PassiveClock) *Log[T] {
	return &Log[T]{
		clock: c, owners: map[types.UID]map[types.UID]entry[T]{}, holder: map[types.UID]types.UID{},
		first: 1, ended: map[uint64]bool{}, gone: map[types.UID]uint64{},
	}
}

// Begin says that a write is under way. The returned function ends that.
func (l *Log[T]) Begin() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	number := l.last
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(number)
	}
}

// end drops what no write that is still under way can tell of.
func (l *Log[T]) end(number uint64) {
	l.ended[number] = true
	for l.ended[l.first] {
		delete(l.ended, l.first)
		l.first++
	}
	settled := 0
	for _, left := range l.leaving {
		if left.last >= l.first {
			break
		}
		if l.gone[left.object] == left.last {
			delete(l.gone, left.object)
		}
		settled++
	}
	l.leaving = l.leaving[settled:]
	if len(l.leaving) == 0 {
		l.leaving = nil
	}
}

// Created notes the answer to a creation. The write must have been begun.
func (l *Log[T]) Created(owner types.UID, object T) {
	l.put(owner, entry[T]{object: object, created: true})
}

// Updated notes the answer to an update. The write must have been begun.
func (l *Log[T]) Updated(owner types.UID, object T) { l.put(owner, entry[T]{object: object}) }

// Deleted notes that an object's deletion was accepted. The object is as Overlay
// shall return it while it lasts. The write must have been begun.
func (l *Log[T]) Deleted(owner types.UID, object T) {
	l.put(owner, entry[T]{object: object, deleted: true})
}

func (l *Log[T]) put(owner types.UID, e entry[T]) {
	e.at = l.clock.Now()
	uid := e.object.GetUID()
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, left := l.gone[uid]; left {
		return // the news overtook the answer
	}
	if before, known := l.owners[owner][uid]; known {
		e.created = before.created
	}
	if l.owners[owner] == nil {
		l.owners[owner] = map[types.UID]entry[T]{}
	}
	l.owners[owner][uid], l.holder[uid] = e, owner
}

// Gone notes that an object has left the cache. It must be called for each.
func (l *Log[T]) Gone(object types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first <= l.last {
		l.gone[object] = l.last
		l.leaving = append(l.leaving, leaver{object, l.last})
	}
	l.drop(l.holder[object], object)
}

// Forget drops everything about an owner that is gone.
func (l *Log[T]) Forget(owner types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid := range l.owners[owner] {
		l.drop(owner, uid)
	}
}

func (l *Log[T]) drop(owner, object types.UID) {
	if _, known := l.owners[owner][object]; !known {
		return
	}
	delete(l.holder, object)
	delete(l.owners[owner], object)
	if len(l.owners[owner]) == 0 {
		delete(l.owners, owner)
	}
}

// Overlay returns an owner's objects as they are after all its own writes:
// cached is what the cache shows of them.
func (l *Log[T]) Overlay(owner types.UID, cached []T) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owners[owner]) == 0 {
		return cached
	}
	out := make([]T, 0, len(cached))
	shown := make(map[types.UID]bool, len(cached))
	for _, object := range cached {
		uid := object.GetUID()
		shown[uid] = true
		e, known := l.owners[owner][uid]
		switch {
		case !known:
			out = append(out, object)
		case !l.late(e) && e.hidden(object):
			out = append(out, e.object)
		default:
			l.drop(owner, uid)
			out = append(out, object)
		}
	}
	for uid, e := range l.owners[owner] {
		switch {
		case shown[uid]:
		case e.created && !l.late(e):
			out = append(out, e.object)
		default:
			l.drop(owner, uid)
		}
	}
	return out
}

// hidden reports whether the cache shows an object as it was before the write.
func (e entry[T]) hidden(cached T) bool {
	if e.deleted {
		return cached.GetDeletionTimestamp() == nil
	}
	// Versions that cannot be compared count as later, so that the cache wins.
	return objectversion.Older(cached.GetResourceVersion(), e.object.GetResourceVersion())
}

func (l *Log[T]) late(e entry[T]) bool { return l.clock.Since(e.at) > forget }
