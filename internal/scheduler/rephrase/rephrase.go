// Package rephrase decides when pods that wait are told once more why, in other words. How many nodes have no room, or
// a taint, changes with each node that joins; telling each pod of each change would be most of what a large cluster
// does.
//
// All pods together are told a hundred times a second at most, so each of a few is told at once. What is told for the
// first time, or has another reason, is none of this. The package is pure, and one goroutine owns a Book.
package rephrase

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// each is the share of one pod that waits in the pause between two words to one, and longest is the longest pause.
const (
	each    = 10 * time.Millisecond
	longest = 5 * time.Minute
)

// every is how often it is looked for words that are due.
const every = time.Second

// Book keeps who was told when, and what is still to be told.
type Book struct {
	said map[types.UID]time.Time
	kept map[types.UID]string
	look time.Time
}

// New returns a Book of which nobody was told anything.
func New() *Book { return &Book{said: map[types.UID]time.Time{}, kept: map[types.UID]string{}} }

// Said takes note that a pod is told something new.
func (b *Book) Said(pod types.UID, now time.Time) {
	b.said[pod] = now
	delete(b.kept, pod)
}

// May reports whether a pod may be told other words now, while so many wait. If not, they are kept.
func (b *Book) May(pod types.UID, words string, waiting int, now time.Time) bool {
	last, known := b.said[pod]
	if !known || now.Sub(last) >= pause(waiting) {
		b.Said(pod, now)
		return true
	}
	if len(b.kept) == 0 {
		b.look = now.Add(every)
	}
	b.kept[pod] = words
	return false
}

func pause(waiting int) time.Duration { return min(time.Duration(waiting)*each, longest) }

// Next returns when to ask for what is due; false if nothing is kept.
func (b *Book) Next() (time.Time, bool) { return b.look, len(b.kept) > 0 }

// Old takes note that what is kept for a pod is not so any more.
func (b *Book) Old(pod types.UID) { delete(b.kept, pod) }

// Forget takes note that a pod does not wait any more.
func (b *Book) Forget(pod types.UID) {
	delete(b.said, pod)
	delete(b.kept, pod)
}

// Due returns the words that may be told by now, by pod, and takes them for told.
func (b *Book) Due(waiting int, now time.Time) map[types.UID]string {
	if len(b.kept) == 0 || now.Before(b.look) {
		return nil
	}
	b.look = now.Add(every)
	due := map[types.UID]string{}
	for pod, words := range b.kept {
		if now.Sub(b.said[pod]) >= pause(waiting) {
			due[pod] = words
		}
	}
	for pod := range due {
		b.Said(pod, now)
	}
	return due
}
