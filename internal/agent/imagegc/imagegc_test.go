package imagegc

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

func chosen(images []Image) string {
	ids := make([]string, len(images))
	for i, image := range images {
		ids[i] = image.ID
	}
	return strings.Join(ids, " ")
}

func TestLeastRecentlyUsedGoesFirst(t *testing.T) {
	var m Memory
	at := func(minute int, images ...Image) { m.Note(images, noon.Add(time.Duration(minute)*time.Minute)) }
	keep := func(id string) Image { return Image{ID: id, Size: 10, Keep: true} }
	free := func(id string) Image { return Image{ID: id, Size: 10} }
	at(0, free("never"), keep("early"), keep("late"), keep("pinned"))
	at(1, free("never"), free("early"), keep("late"), keep("pinned"))
	at(2, free("never"), free("early"), free("late"), keep("pinned"), free("new"))
	all := []Image{free("new"), free("late"), free("never"), keep("pinned"), free("early")}
	now := noon.Add(3 * time.Minute)
	for _, c := range []struct {
		want   int64
		minAge time.Duration
		ids    string
	}{
		{5, 2 * time.Minute, "never"},
		{10, 2 * time.Minute, "never"},
		{11, 2 * time.Minute, "never early"},
		{1 << 40, 2 * time.Minute, "never early late"}, // new is too young
		{1 << 40, time.Second, "never new early late"},
		{0, time.Second, ""},
	} {
		if got := chosen(m.Choose(all, c.want, c.minAge, now)); got != c.ids {
			t.Errorf("for %d bytes, older than %s: %q, want %q", c.want, c.minAge, got, c.ids)
		}
	}
	// What went and came back is new again.
	at(3, free("late"))
	at(4, free("late"), free("early"))
	if got := chosen(m.Choose([]Image{free("early")}, 1, time.Minute, noon.Add(4*time.Minute))); got != "" {
		t.Errorf("an image that just came is removed: %q", got)
	}
}

func TestWant(t *testing.T) {
	for _, c := range []struct{ available, want int64 }{{16, 0}, {15, 5}, {10, 10}, {0, 20}} {
		if got := Want(c.available, 100, 85, 80); got != c.want {
			t.Errorf("with %d %% free: %d, want %d", c.available, got, c.want)
		}
	}
	if got := Want(0, 0, 85, 80); got != 0 {
		t.Errorf("an unknown disk: %d", got)
	}
}
