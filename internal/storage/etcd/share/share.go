// Package share decides whether a writer may write to the database now, so that one of them cannot use up the
// history of all: whatever is written stays for some minutes in which others go on where they were.
package share

import "time"

// swept is how many writers are remembered at least before those are forgotten who may write as much as any.
const swept = 1000

// Shares are how much each writer has left. A writer who has something left may write, however much it is: what is
// beyond that has to be waited for.
type Shares struct {
	// rate is bytes in a second, and most what a writer has left at most.
	rate, most float64
	left       map[string]left
	sweepAt    int
}

// left is what a writer had at a moment; less than nothing after it wrote more than it had.
type left struct {
	bytes float64
	at    time.Time
}

// New gives each writer so many bytes a minute, and as much at once.
func New(perMinute int64) *Shares {
	return &Shares{rate: float64(perMinute) / 60, most: float64(perMinute), left: map[string]left{}, sweepAt: swept}
}

// Wait returns how long a writer has to wait before it may write; 0 for not at all.
func (s *Shares) Wait(now time.Time, writer string) time.Duration {
	has := s.has(now, writer)
	if has > 0 {
		return 0
	}
	return time.Duration((1 - has) / s.rate * float64(time.Second))
}

// Wrote takes what a writer has written, in bytes, from its share.
func (s *Shares) Wrote(now time.Time, writer string, bytes int) {
	s.left[writer] = left{s.has(now, writer) - float64(bytes), now}
	if len(s.left) < s.sweepAt {
		return
	}
	for name := range s.left {
		if s.has(now, name) >= s.most {
			delete(s.left, name)
		}
	}
	s.sweepAt = max(swept, 2*len(s.left))
}

func (s *Shares) has(now time.Time, writer string) float64 {
	l, known := s.left[writer]
	if !known {
		return s.most
	}
	passed := max(0, now.Sub(l.at).Seconds()) // a clock that was set back gives nothing
	return min(s.most, l.bytes+passed*s.rate)
}
