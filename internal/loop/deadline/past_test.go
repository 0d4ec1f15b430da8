package deadline_test

import (
	"testing"
	"time"

	"github.com/everynode/everynode/internal/loop/clocktest"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// A time that another clock gave goes on with this process' clock, whatever the one on the wall is set to.
func TestPast(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	now, later := clocktest.At(noon, time.Hour), clocktest.At(noon.Add(-time.Hour), 2*time.Hour)
	for _, c := range []struct {
		at   time.Time
		want time.Duration // before now
	}{
		{noon.Add(-time.Minute), time.Minute}, {noon, 0}, {noon.Add(time.Minute), 0},
	} {
		if got := deadline.Past(c.at, now); now.Sub(got) != c.want || later.Sub(got) != time.Hour+c.want {
			t.Errorf("at %s: it is %s, which was %s ago and is %s", c.at, got, now.Sub(got), later.Sub(got))
		}
	}
	if got := deadline.Past(time.Time{}, now); !got.IsZero() {
		t.Errorf("no time is %s", got)
	}
}
