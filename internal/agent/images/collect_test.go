package images

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"
)

// shelf is an image service that has images and gives them away.
type shelf struct {
	internalapi.ImageManagerService
	images  []*runtimeapi.Image
	removed []string
	stuck   string
}

func (s *shelf) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return s.images, nil
}

func (s *shelf) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	if spec.Image == s.stuck {
		return errors.New("it is stuck")
	}
	s.removed = append(s.removed, spec.Image)
	return nil
}

func TestCollect(t *testing.T) {
	for name, c := range map[string]struct {
		available int64
		high      int
		stuck     string
		removed   []string
		warned    string
		fails     bool
	}{
		"room enough":          {available: 16, high: 85},
		"one is enough":        {available: 12, high: 85, removed: []string{"a"}},
		"not enough to remove": {available: 0, high: 85, removed: []string{"a", "b"}, warned: "FreeDiskSpaceFailed Failed to garbage collect required amount of images. Attempted to free 20 bytes, but only found 18 bytes eligible to free."},
		"switched off":         {available: 0, high: 100},
		"one cannot go":        {available: 0, high: 85, stuck: "a", removed: []string{"b"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{stuck: c.stuck, images: []*runtimeapi.Image{
				{Id: "a", Size: 9}, {Id: "b", Size: 9}, {Id: "by-tag", RepoTags: []string{"used:1"}, Size: 9},
				{Id: "by-digest", RepoDigests: []string{"used@sha256:1"}, Size: 9}, {Id: "by-id", Size: 9}, {Id: "pinned", Pinned: true, Size: 9}}}
			var warned string
			collector := NewCollector(CollectorConfig{
				Service: s, High: c.high, Low: 80, MinAge: time.Minute, Clock: testingclock.NewFakeClock(time.Unix(1e9, 0)),
				Used: func(context.Context) (map[string]bool, error) {
					return map[string]bool{"used:1": true, "used@sha256:1": true, "by-id": true}, nil
				},
				Space: func(context.Context) (int64, int64, error) { return c.available, 100, nil },
				Warn:  func(reason, message string) { warned = reason + " " + message },
			})
			err := collector.collect(t.Context())
			if !slices.Equal(s.removed, c.removed) || warned != c.warned || (err != nil) != c.fails {
				t.Errorf("removed %q, warned %q, error %v; want %q, %q, an error: %v", s.removed, warned, err, c.removed, c.warned, c.fails)
			}
		})
	}
}

// Thresholds that switch the collection off are no reason to evict pods while unused images fill the disk.
func TestRemoveUnusedWithCollectionOff(t *testing.T) {
	s := &shelf{images: []*runtimeapi.Image{{Id: "a", Size: 9}, {Id: "used", Size: 9}}}
	collector := NewCollector(CollectorConfig{
		Service: s, High: 100, Low: 80, MinAge: time.Minute, Clock: testingclock.NewFakeClock(time.Unix(1e9, 0)),
		Used: func(context.Context) (map[string]bool, error) { return map[string]bool{"used": true}, nil },
	})
	freed, err := collector.RemoveUnused(t.Context())
	if err != nil || freed != 9 || !slices.Equal(s.removed, []string{"a"}) {
		t.Errorf("freed %d by removing %q, %v", freed, s.removed, err)
	}
}

func TestFirstLookRemovesNothing(t *testing.T) {
	s := &shelf{images: []*runtimeapi.Image{{Id: "a", Size: 9}}}
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	looked := make(chan struct{}, 10)
	collector := NewCollector(CollectorConfig{
		Service: s, High: 85, Low: 80, MinAge: time.Minute, Clock: clock,
		Used: func(context.Context) (map[string]bool, error) {
			looked <- struct{}{}
			return nil, nil
		},
		Space: func(context.Context) (int64, int64, error) { return 0, 100, nil },
		Warn:  func(string, string) {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		collector.Run(ctx)
		close(done)
	}()
	<-looked
	collector.mu.Lock() // until the look is over
	if len(s.removed) != 0 {
		t.Errorf("%v was removed at the start", s.removed)
	}
	collector.mu.Unlock()
	clock.Step(collectEvery)
	<-looked
	cancel()
	<-done
	if !slices.Equal(s.removed, []string{"a"}) {
		t.Errorf("later %v was removed, want the image", s.removed)
	}
}

// What nobody uses for long goes whatever the disk is like, and nothing that is used or kept.
func TestUnusedForLong(t *testing.T) {
	s := &shelf{images: []*runtimeapi.Image{{Id: "idle", Size: 9}, {Id: "used", Size: 9}, {Id: "pinned", Pinned: true, Size: 9}}}
	used := map[string]bool{"used": true}
	clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
	c := NewCollector(CollectorConfig{Service: s, High: 100, Low: 80, MinAge: time.Minute, Unused: 24 * time.Hour, Clock: clock, Warn: func(string, string) {},
		Used: func(context.Context) (map[string]bool, error) { return used, nil }})
	step := func(what string, d time.Duration, want ...string) {
		t.Helper()
		clock.Step(d)
		s.removed = nil
		if err := c.collect(t.Context()); err != nil || !slices.Equal(s.removed, want) {
			t.Errorf("%s: removed %q, %v, want %q", what, s.removed, err, want)
		}
		s.images = slices.DeleteFunc(s.images, func(i *runtimeapi.Image) bool { return slices.Contains(s.removed, i.Id) })
	}
	step("at first nobody knows", 0)
	step("a moment before", 24*time.Hour-time.Second)
	step("at the time", time.Second, "idle")
	used = map[string]bool{}
	s.images = append(s.images, &runtimeapi.Image{Id: "new", Size: 9})
	step("a while after its last use", 20*time.Hour)
	step("long after its last use", 4*time.Hour, "used")
	step("long after it came", 20*time.Hour, "new")
}
