package renewal

import (
	"fmt"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestDue(t *testing.T) {
	for _, c := range []struct {
		life, age time.Duration
		share     float64
		due       bool
	}{
		{time.Hour, 41 * time.Minute, 0, false},
		{time.Hour, 43 * time.Minute, 0, true},
		{time.Hour, 47 * time.Minute, 1, false},
		{time.Hour, 49 * time.Minute, 1, true},
		{365 * 24 * time.Hour, 20 * time.Hour, 0, false},
		{365 * 24 * time.Hour, 22 * time.Hour, 0, true},
		{365 * 24 * time.Hour, 23 * time.Hour, 1, false},
		{365 * 24 * time.Hour, 24*time.Hour + time.Minute, 1, true},
		{time.Hour, -30 * time.Second, 1, false},
		{time.Hour, -2 * time.Minute, 1, true},
	} {
		if got := Due(noon, noon.Add(c.life), noon.Add(c.age), c.share); got != c.due {
			t.Errorf("a token for %s, %s old, with share %v: due is %v", c.life, c.age, c.share, got)
		}
	}
}

func TestPause(t *testing.T) {
	for share, want := range map[float64][]time.Duration{
		0: {30 * time.Second, time.Minute, 2 * time.Minute, 2 * time.Minute},
		1: {time.Minute, 2 * time.Minute, 4 * time.Minute, 4 * time.Minute},
	} {
		var p Pause
		if !p.Over(noon) {
			t.Error("nothing failed, and there is a pause")
		}
		for n, long := range want {
			p.Fail(noon, share)
			if p.Over(noon.Add(long-time.Second)) || !p.Over(noon.Add(long)) {
				t.Errorf("pause %d with share %v is not over after %s", n, share, long)
			}
		}
		if !p.Over(noon.Add(-time.Hour)) {
			t.Error("a clock that was set back makes the pause longer")
		}
	}
}

// Shares of texts that are much alike are spread evenly.
func TestShare(t *testing.T) {
	var tenths [10]int
	for i := range 10_000 {
		tenths[int(Share(fmt.Sprintf("node-%05d", i), "3600")*10)]++
	}
	for _, n := range tenths {
		if n < 800 || n > 1200 {
			t.Errorf("of 10,000 shares %v are in each tenth", tenths)
		}
	}
	if Share("a", "bc") == Share("ab", "c") {
		t.Error("other texts have the same share")
	}
}
