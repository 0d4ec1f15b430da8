package fresh

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestAReadThatHasBegunAnswersNobodyElse has two ask while a read runs. They share the next one.
func TestAReadThatHasBegunAnswersNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var world, reads atomic.Int64
		r := Reads[string, int64]{Apart: 3 * time.Second}
		read := func(context.Context) (int64, error) {
			reads.Add(1)
			seen := world.Load() // what is true when it begins
			time.Sleep(time.Second)
			return seen, nil
		}
		var all sync.WaitGroup
		ask := func(want int64) {
			all.Go(func() {
				got, err := r.Get(t.Context(), "a", read)
				if err != nil || got != want {
					t.Errorf("it was told %d, %v; want %d", got, err, want)
				}
			})
			synctest.Wait()
		}
		ask(0)
		world.Store(1)
		ask(3) // the read that it is told of begins later
		world.Store(2)
		ask(3)
		time.Sleep(2 * time.Second) // the first one is done, and the next one is not due
		world.Store(3)
		ask(3)
		all.Wait()
		time.Sleep(time.Minute) // nobody waits for another one
		if n := reads.Load(); n != 2 {
			t.Errorf("%d reads, want the first one and one for all who asked meanwhile", n)
		}
	})
}

// TestNothingOlderThanTheQuestion has many ask while a counter is raised, each for what it was when he asked, or later.
func TestNothingOlderThanTheQuestion(t *testing.T) {
	var world, reads atomic.Int64
	var r Reads[int, int64]
	read := func(context.Context) (int64, error) {
		reads.Add(1)
		seen := world.Load()
		time.Sleep(50 * time.Microsecond)
		return seen, nil
	}
	var all sync.WaitGroup
	const askers, each = 16, 200
	for i := range askers {
		all.Go(func() {
			for range each {
				least := world.Add(1)
				got, err := r.Get(t.Context(), i%2, read)
				if err != nil || got < least {
					t.Errorf("it was told %d, %v; when it asked there was %d", got, err, least)
				}
			}
		})
	}
	all.Wait()
	if n := reads.Load(); n == askers*each {
		t.Error("nobody shared a read")
	}
}

// TestWhoWaitsNoLongerLeavesTheReadToOthers has one give up whom another one shares a read with.
func TestWhoWaitsNoLongerLeavesTheReadToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("away")
		var r Reads[string, int]
		read := func(ctx context.Context) (int, error) {
			time.Sleep(2 * time.Second)
			return 0, errors.Join(ctx.Err(), why)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var other error
		var all sync.WaitGroup
		var err error
		all.Go(func() { _, err = r.Get(short, "a", read) })
		synctest.Wait()
		all.Go(func() { _, other = r.Get(t.Context(), "a", read) })
		all.Wait()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who waits no longer is told %v", err)
		}
		if !errors.Is(other, why) || errors.Is(other, context.DeadlineExceeded) {
			t.Errorf("the other one is told %v", other)
		}
	})
}

// TestAReadThatPanicsIsAnErrorForAllWhoShareIt, as is one that ends its goroutine, and the next one reads.
func TestAReadThatPanicsIsAnErrorForAllWhoShareIt(t *testing.T) {
	for name, fault := range map[string]func(){"a panic": func() { panic("no such field") }, "an end": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var r Reads[string, int]
			bad := true
			read := func(context.Context) (int, error) {
				time.Sleep(time.Second)
				if bad {
					fault()
				}
				return 7, nil
			}
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					got, err := r.Get(t.Context(), "a", read)
					if err == nil || got != 0 || name == "a panic" && err.Error() != "panic: no such field" {
						t.Errorf("after %s it is told %d, %v", name, got, err)
					}
				})
			}
			all.Wait()
			bad = false
			got, err := r.Get(t.Context(), "a", read)
			if err != nil || got != 7 {
				t.Errorf("who asks after %s is told %d, %v", name, got, err)
			}
			synctest.Wait()
			if len(r.keys) != 0 {
				t.Errorf("after %s something is left", name)
			}
		})
	}
}

// TestReadsRunAbreast: where two may, who asks while one runs does not wait for its end, and who asks while both run
// does for one of them.
func TestReadsRunAbreast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		r := Reads[string, int]{Apart: 5 * time.Millisecond, Abreast: 2}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_, _ = r.Get(t.Context(), "a", func(context.Context) (int, error) {
					mu.Lock()
					at = append(at, time.Since(began))
					mu.Unlock()
					time.Sleep(time.Second)
					return 0, nil
				})
			})
			time.Sleep(10 * time.Millisecond)
		}
		all.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		want := []time.Duration{0, 10 * time.Millisecond, time.Second}
		if !slices.Equal(at, want) || len(r.keys) != 0 {
			t.Errorf("reads began after %v, want %v; of %d keys there is something left", at, want, len(r.keys))
		}
	})
}
