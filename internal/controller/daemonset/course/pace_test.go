package course

import (
	"testing"
	"time"
)

// A pace that has saved up one node lets one begin now; one without a limit says so, and waits for nothing.
func TestPaceAtItsBoundaries(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	var p Pace
	p.Set(0, now)
	if p.Limited() || p.Spend(5) != 5 || p.Allows(now) < 1 {
		t.Error("a pace without a limit limits")
	}
	p.Set(1, now)
	if next := p.Next(); !p.Limited() || p.Allows(now) != 1 || !next.Equal(now) {
		t.Errorf("one is saved up, %d may begin, the next at %s", p.Allows(now), next)
	}
	p.Spend(1)
	if next := p.Next(); p.Allows(now) != 0 || next.Sub(now).Round(time.Second) != time.Minute {
		t.Errorf("none is saved up, %d may begin, the next after %s", p.Allows(now), next.Sub(now))
	}
}
