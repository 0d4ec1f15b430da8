package matrix

import "time"

// pace bounds the creations of one kind.
type pace struct {
	window   int // that may be in flight: the slow start
	inFlight int
	until    time.Time // after a failure, none before that
	moved    time.Time // when one was last begun or answered
}

// slowAnswer is how long creations that get no answer hold up the next one.
const slowAnswer = time.Second

func (p *pace) open(now time.Time) bool { return p.inFlight < p.window && !p.until.After(now) }

// next returns when the pace allows another creation by time alone.
func (p *pace) next() time.Time {
	if p.inFlight < p.window {
		return p.until
	}
	return p.moved.Add(slowAnswer)
}

// yield has a creation without an answer hold up no other for long.
func (p *pace) yield(now time.Time) {
	if p.inFlight >= p.window && !p.next().After(now) {
		p.window, p.moved = p.inFlight+1, now
	}
}

func (p *pace) begin(now time.Time) { p.inFlight, p.moved = p.inFlight+1, now }

func (p *pace) end(now time.Time) { p.inFlight, p.moved = max(0, p.inFlight-1), now }
