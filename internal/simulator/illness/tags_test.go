package illness

import (
	"strings"
	"testing"
	"time"
)

func TestTagsMove(t *testing.T) {
	plan, other := mustParse(t, "tags: {move: 10s}"), mustParse(t, "{seed: 2, tags: {move: 10s}}")
	named, moves, last := map[string]bool{}, 0, ""
	for s := range 1000 {
		now := begin.Add(time.Duration(s) * time.Second)
		id := plan.ImageID("host:5000/demo:v1", now)
		if is := strings.HasPrefix(id, "host:5000/demo@sha256:"); !is || len(id) != len("host:5000/demo@sha256:")+64 {
			t.Fatalf("the image is %q", id)
		}
		if id != last {
			moves++
		}
		if id == plan.ImageID("host:5000/demo:v2", now) || id == other.ImageID("host:5000/demo:v1", now) {
			t.Fatal("another tag, or another seed, has the same")
		}
		last = id
		named[id] = true
	}
	if moves < 90 || moves > 101 || len(named) != moves {
		t.Errorf("in 1000 s the tag moved %d times, to %d images", moves, len(named))
	}
	if id := plan.ImageID("demo@sha256:abc", begin); id != "demo@sha256:abc" {
		t.Errorf("an image that is named by digest is %q", id)
	}
	if id := mustParse(t, "seed: 1").ImageID("demo:v1", begin); id != "" {
		t.Errorf("where nothing is said of tags the image is %q", id)
	}
	_, err := Parse([]byte("tags: {}"))
	if err == nil || !strings.Contains(err.Error(), "move") {
		t.Errorf("tags that never move: %v", err)
	}
}
