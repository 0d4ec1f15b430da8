package clocktest

import (
	"testing"
	"time"
)

// Times of one process are told apart by how long it has run, and by the wall from all others.
func TestAClockThatIsSet(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	before, after := At(noon, time.Minute), At(noon.Add(-time.Hour), 2*time.Minute)
	if !after.After(before) || after.Sub(before) != time.Minute {
		t.Errorf("a minute later is %s later", after.Sub(before))
	}
	if !after.Equal(noon.Add(-time.Hour)) || after.Hour() != 11 {
		t.Errorf("the wall shows %s", after)
	}
}
