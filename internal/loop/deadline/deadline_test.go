package deadline

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Timers agrees, after any steps, with a map that is sorted again each time.
func TestTimersAgainstASortedMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		epoch := time.Unix(0, 0)
		var all [8]Timer[int]
		for i := range all {
			all[i].Owner = i
		}
		var timers Timers[int]
		want := map[int]time.Time{}
		now := epoch
		earliest := func() (time.Time, bool) {
			var at time.Time
			for _, x := range want {
				if at.IsZero() || x.Before(at) {
					at = x
				}
			}
			return at, len(want) > 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				i, at := rapid.IntRange(0, len(all)-1).Draw(t, "timer"), now.Add(time.Duration(rapid.IntRange(-2, 9).Draw(t, "in")))
				timers.Set(&all[i], at)
				want[i] = at
			},
			"stop": func(t *rapid.T) {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "timer")
				if rapid.Bool().Draw(t, "by the zero time") {
					timers.Set(&all[i], time.Time{})
				} else {
					timers.Stop(&all[i])
				}
				delete(want, i)
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "time")))
				var ended []int
				last := time.Time{}
				for timer := timers.Pop(now); timer != nil; timer = timers.Pop(now) {
					if timer.At().Before(last) {
						t.Fatalf("timer %d of %v ended after %v", timer.Owner, timer.At(), last)
					}
					last = timer.At()
					ended = append(ended, timer.Owner)
				}
				var due []int
				for i, at := range want {
					if !at.After(now) {
						due = append(due, i)
						delete(want, i)
					}
				}
				slices.Sort(ended)
				slices.Sort(due)
				if !slices.Equal(ended, due) {
					t.Fatalf("ended %v, want %v", ended, due)
				}
			},
			"": func(t *rapid.T) {
				next, armed := timers.Next()
				if at, some := earliest(); armed != some || !next.Equal(at) {
					t.Fatalf("next %v (%v), want %v (%v)", next, armed, at, some)
				}
				if timers.Len() != len(want) {
					t.Fatalf("%d timers are armed, want %d", timers.Len(), len(want))
				}
				for i := range all {
					if at, armed := want[i]; all[i].Armed() != armed || (armed && !all[i].At().Equal(at)) {
						t.Fatalf("timer %d armed %v for %v, want %v for %v", i, all[i].Armed(), all[i].At(), armed, at)
					}
				}
			},
		})
	})
}

func TestSooner(t *testing.T) {
	never, early := time.Time{}, time.Unix(1, 0)
	late := early.Add(time.Second)
	for _, c := range []struct{ a, b, want time.Time }{
		{early, late, early}, {late, early, early}, {never, late, late}, {late, never, late}, {never, never, never},
	} {
		if got := Sooner(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("of %v and %v the sooner is %v", c.a, c.b, got)
		}
	}
}
