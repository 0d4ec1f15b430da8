package failing

import (
	"testing"
	"time"
)

func TestFailureBackoff(t *testing.T) {
	var b Backoff
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	if !b.Until(1).IsZero() {
		t.Error("the first failed pod waits")
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900} {
		b.Next(1, "a", now, time.Second, 15*time.Minute)
		if got := b.Until(1).Sub(now); got != want*time.Second {
			t.Fatalf("the next failed pod waits %s, want %s", got, want*time.Second)
		}
		now = now.Add(want * time.Second)
	}
	if !b.Until(2).IsZero() {
		t.Error("a new generation waits for the back-off of the old one")
	}
	quiet := b
	quiet.Next(1, "a", now.Add(30*time.Minute+time.Second), time.Second, 15*time.Minute)
	if quiet.delay != time.Second {
		t.Errorf("after half an hour without a failure the delay is %s, want 1s", quiet.delay)
	}
	b.Next(2, "a", now, time.Second, 15*time.Minute)
	if b.delay != time.Second {
		t.Errorf("in a new generation the delay is %s, want 1s", b.delay)
	}
	b.Next(2, "a", now, time.Second, 15*time.Minute)
	b.Next(2, "b", now, time.Second, 15*time.Minute)
	if b.delay != 4*time.Second || b.Of("b") != 1 || b.Of("a") != 0 {
		t.Errorf("after one failure of b the delay is %s, and counted are %d of b, %d of a", b.delay, b.Of("b"), b.Of("a"))
	}
}
