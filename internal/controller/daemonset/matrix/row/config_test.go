package row

import (
	"testing"
	"time"
)

func TestDefaultLimits(t *testing.T) {
	cfg := Config{}.WithDefaults()
	if cfg.BurstReplicas != 250 || cfg.FailedPodBackoff != time.Second || cfg.MaxFailedPodBackoff != 15*time.Minute {
		t.Errorf("limits are %+v, want 250 creations, and 1s to 15m between failed pods", cfg)
	}
}

func TestFailureBackoff(t *testing.T) {
	cfg := Config{}.WithDefaults()
	var b failureBackoff
	now := start
	if !b.until(1).IsZero() {
		t.Error("the first failed pod waits")
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900} {
		b.next(1, "a", now, &cfg)
		if got := b.until(1).Sub(now); got != want*time.Second {
			t.Fatalf("the next failed pod waits %s, want %s", got, want*time.Second)
		}
		now = now.Add(want * time.Second)
	}
	if !b.until(2).IsZero() {
		t.Error("a new generation waits for the back-off of the old one")
	}
	quiet := b
	quiet.next(1, "a", now.Add(30*time.Minute+time.Second), &cfg)
	if quiet.delay != time.Second {
		t.Errorf("after half an hour without a failure the delay is %s, want 1s", quiet.delay)
	}
	b.next(2, "a", now, &cfg)
	if b.delay != time.Second {
		t.Errorf("in a new generation the delay is %s, want 1s", b.delay)
	}
	b.next(2, "a", now, &cfg)
	b.next(2, "b", now, &cfg)
	if b.delay != 4*time.Second || b.of("b") != 1 || b.of("a") != 0 {
		t.Errorf("after one failure of b the delay is %s, and counted are %d of b, %d of a", b.delay, b.of("b"), b.of("a"))
	}
}
