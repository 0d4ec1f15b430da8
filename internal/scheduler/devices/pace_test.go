package devices

import (
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// slowClock goes on with each look at it, so that everything takes time.
type slowClock struct {
	*clocktesting.FakePassiveClock
	step time.Duration
}

func (c *slowClock) Now() time.Time {
	c.SetTime(c.FakePassiveClock.Now().Add(c.step))
	return c.FakePassiveClock.Now()
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestPace(t *testing.T) {
	at := func(d time.Duration) time.Time { return start.Add(d) }
	p := pace{}
	pausing := func(namespace string, now, want time.Duration) {
		t.Helper()
		wanted := at(want)
		if want == 0 {
			wanted = time.Time{}
		}
		if got := p.until(namespace, at(now)); !got.Equal(wanted) {
			t.Errorf("at %s %q pauses until %s, want %s", now, namespace, got, wanted)
		}
	}
	p.spent("a", cheap, start)
	pausing("a", 0, 0)
	p.spent("a", cheap+2*time.Second, start)
	pausing("a", 0, 20*time.Second)
	pausing("b", 0, 0)
	p.spent("a", cheap+time.Second, at(time.Second)) // on another node, in the same attempt
	pausing("a", time.Second, 30*time.Second)
	pausing("a", 30*time.Second, 0)
	p.spent("b", cheap+time.Second, at(time.Minute))
	if len(p) != 1 {
		t.Errorf("pauses that are over are remembered: %v", p)
	}
	p.spent("a", cheap+time.Second, at(2*time.Minute)) // what is over does not count
	pausing("a", 2*time.Minute, 2*time.Minute+10*time.Second)
}

// A namespace whose claims are costly pauses: all its pods for which devices are to be chosen, and no others.
func TestOnlyThoseWhoCostPause(t *testing.T) {
	b := book(offer("n1", 3), claim("costly"), claim("cheap"), claim("met"))
	now := &slowClock{clocktesting.NewFakePassiveClock(start), 0}
	b.clock = now
	give(t, b, user("first", "met"), "n1")
	stranger := claim("of a stranger")
	stranger.Namespace = "elsewhere"
	b.SetClaim(stranger)
	costly := user("costly", "costly")
	if until := b.Attempt(costly); !until.IsZero() {
		t.Fatalf("nothing was spent, and it pauses until %s", until)
	}
	now.step = time.Second
	if text := b.Ask(costly).Missing(node("n1")); text != "" {
		t.Fatal(text)
	}
	now.step = 0
	foreigner := user("p", "of a stranger")
	foreigner.Namespace = "elsewhere"
	if until := b.Attempt(user("p", "cheap")); !until.After(now.Now()) {
		t.Error("the next pod of the namespace does not pause")
	}
	if until := b.Attempt(user("p", "met")); !until.IsZero() {
		t.Errorf("a pod whose claim has devices pauses until %s", until)
	}
	if until := b.Attempt(user("p")); !until.IsZero() {
		t.Errorf("a pod without claims pauses until %s", until)
	}
	if until := b.Attempt(foreigner); !until.IsZero() {
		t.Errorf("a pod of another namespace pauses until %s", until)
	}
	now.SetTime(now.Now().Add(time.Minute))
	if until := b.Attempt(user("p", "cheap")); !until.IsZero() {
		t.Errorf("after the pause it pauses until %s", until)
	}
}

// Within an attempt each node is asked once, whoever asks; the next attempt asks again.
func TestAnAttemptAsksEachNodeOnce(t *testing.T) {
	b := book(offer("n1", 1), offer("n2", 1), claim("c"))
	now := &slowClock{clocktesting.NewFakePassiveClock(start), time.Millisecond}
	b.clock = now
	p := user("p", "c")
	looks := func(do func()) time.Duration {
		before := now.FakePassiveClock.Now()
		do()
		return now.FakePassiveClock.Now().Sub(before) / now.step
	}
	ask := func() {
		t.Helper()
		if text := b.Ask(p).Missing(node("n1")); text != "" {
			t.Error(text)
		}
	}
	b.Attempt(p)
	if n := looks(ask); n != 2 {
		t.Errorf("the first question took %d looks at the clock, want 2", n)
	}
	if n := looks(ask); n != 0 {
		t.Errorf("the second question took %d", n)
	}
	if n := looks(func() { give(t, b, p, "n1") }); n != 0 {
		t.Errorf("giving what was found took %d", n)
	}
	b.clock = clock.RealClock{}
	b.Attempt(p)
	if text := b.Ask(p).Missing(node("n2")); text != TextElsewhere {
		t.Errorf("the next attempt does not know that the claim has devices: %q", text)
	}
}
