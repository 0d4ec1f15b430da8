// Package renewal decides when a pod's token is replaced by a new one, so that the nodes of a fleet do not all ask at
// once: not in the minute in which a server is back, nor each time that the tokens of that minute grow old together.
// It is pure.
package renewal

import (
	"hash/fnv"
	"math"
	"time"
)

const (
	// maxAge is when even a long-lived token is replaced.
	maxAge = 24 * time.Hour
	// setBack is by how much a clock may be set back before the age of what was issued is no longer known.
	setBack = time.Minute
	// late is the share of a token's life after which it is replaced at the latest, early at the earliest. Kubelets
	// wait for four fifths.
	early, late = 0.7, 0.8

	first, longest = time.Minute, 4 * time.Minute
)

// Share is a number from 0 to 1 that is another for other texts, and always the same for the same ones.
func Share(texts ...string) float64 {
	h := fnv.New64a()
	for _, text := range texts {
		_, _ = h.Write([]byte(text))
		_, _ = h.Write([]byte{0})
	}
	return float64(h.Sum64()) / math.MaxUint64
}

// Due reports whether a token is to be replaced that was issued then and ends then. Each token has its share, by which
// it comes earlier or later. One that was issued in the future is: the clock was set back, and nobody knows its age.
func Due(issued, ends, now time.Time, share float64) bool {
	if now.Before(issued.Add(-setBack)) {
		return true
	}
	part := early + (late-early)*share
	life := min(ends.Sub(issued), time.Duration(float64(maxAge)/late))
	return now.After(issued.Add(time.Duration(float64(life) * part)))
}

// Pause is how long to wait after attempts that failed: longer after each, up to some minutes.
type Pause struct {
	from, until time.Time
	failed      int
}

// Over reports whether to try again. A pause that would begin later is over: the clock was set back.
func (p *Pause) Over(now time.Time) bool {
	return !now.Before(p.until) || now.Before(p.from.Add(-setBack))
}

// Fail begins a pause. Half of it is the same for all, the share of the other half is the caller's.
func (p *Pause) Fail(now time.Time, share float64) {
	long := longest
	if p.failed < 2 {
		long = first << p.failed
	}
	p.failed++
	p.from, p.until = now, now.Add(long/2+time.Duration(share*float64(long/2)))
}

// Failed says how many attempts failed one after the other.
func (p *Pause) Failed() int { return p.failed }
