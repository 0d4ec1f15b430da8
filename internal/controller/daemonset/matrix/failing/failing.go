// Package failing spaces the deletions of pods that fail one after the other on a node.
package failing

import "time"

// Backoff is that of one node. Its zero value is one where no pod has failed.
type Backoff struct {
	generation int64
	delay      time.Duration
	at         time.Time
	// count is how many pods of the revision failed one after the other.
	revision string
	count    int
}

// Until returns when the next failed pod may be deleted; zero means at once.
func (b *Backoff) Until(generation int64) time.Time {
	if b.delay == 0 || b.generation != generation {
		return time.Time{}
	}
	return b.at.Add(b.delay)
}

// Next counts the deletion of a pod of the revision. A spec change or a long quiet time starts from the beginning, with
// the shortest delay; another revision has the same delay, and a count of its own.
func (b *Backoff) Next(generation int64, revision string, now time.Time, shortest, longest time.Duration) {
	if b.delay == 0 || b.generation != generation || now.Sub(b.at) > 2*longest {
		b.delay, b.count = shortest, 0
	} else {
		b.delay = min(2*b.delay, longest)
	}
	if b.revision != revision {
		b.count = 0
	}
	b.generation, b.revision, b.at, b.count = generation, revision, now, b.count+1
}

// Of returns how many pods of the revision failed one after the other.
func (b *Backoff) Of(revision string) int32 {
	if b.revision != revision {
		return 0
	}
	return int32(b.count)
}
