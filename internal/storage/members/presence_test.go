package members

import (
	"slices"
	"testing"
	"time"
)

func TestPresence(t *testing.T) {
	var p Presence
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after        time.Duration
		marks        map[string]string
		living, dead []string
	}{
		{0, map[string]string{"b": "1", "a": "1"}, []string{"a", "b"}, nil},
		{Patience, map[string]string{"b": "2", "a": "1"}, []string{"a", "b"}, nil},
		{Patience + time.Second, map[string]string{"b": "2", "a": "1"}, []string{"b"}, nil},
		{Patience + 2*time.Second, map[string]string{"b": "3", "a": "2", "c": "9"}, []string{"a", "b", "c"}, nil},
		{Patience + 3*time.Second, map[string]string{"b": "4"}, []string{"b"}, nil},
		{time.Hour, map[string]string{"b": "5", "a": "2"}, []string{"a", "b"}, nil},
		{3 * time.Hour, map[string]string{"b": "6", "a": "2"}, []string{"b"}, []string{"a"}},
	} {
		living, dead := p.Look(start.Add(step.after), step.marks, time.Hour)
		if !slices.Equal(living, step.living) || !slices.Equal(dead, step.dead) {
			t.Errorf("after %v: living %v, dead %v; want %v, %v", step.after, living, dead, step.living, step.dead)
		}
	}
}
