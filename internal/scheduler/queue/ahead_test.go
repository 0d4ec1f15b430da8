package queue

import (
	"testing"
	"time"

	"github.com/everynode/everynode/internal/fit"
)

// TestWhoIsAhead: the more important is ahead, then who came first; who is not due is not.
func TestWhoIsAhead(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	second := start.Add(time.Second)
	q := New(Config{})
	if q.Ahead(0, start, start) {
		t.Error("somebody is ahead in an empty queue")
	}
	q.Add(&fit.Pod{UID: "u", Priority: 5}, false, second)
	for name, c := range map[string]struct {
		priority int32
		since    time.Time
		want     bool
	}{
		"more important":                 {6, second.Add(time.Hour), false},
		"less important, and earlier":    {4, start, true},
		"as important, and earlier":      {5, start, false},
		"as important, at the same time": {5, second, true},
		"as important, and later":        {5, second.Add(1), true},
	} {
		if got := q.Ahead(c.priority, c.since, second); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	q.Pop(second)
	if q.Ahead(0, second, second) {
		t.Error("a pod that is being scheduled is ahead")
	}
	q.Retry("u", second)
	if q.Ahead(0, second, second) {
		t.Error("a pod that waits after a failure is ahead")
	}
	if later := second.Add(time.Second); !q.Ahead(0, later, later) {
		t.Error("one whose time has come is not ahead")
	}
}
