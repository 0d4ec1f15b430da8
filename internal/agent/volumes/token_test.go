package volumes

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// A pod's token is replaced in time, however wrong the machine's clock is and whichever way it jumps.
func TestTokensByAWrongClock(t *testing.T) {
	real := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for name, start := range map[string]time.Time{"1970": time.Unix(600, 0), "2099": real.AddDate(73, 0, 0)} {
		server, machine := testingclock.NewFakeClock(real), testingclock.NewFakeClock(start)
		objects := &fakeObjects{clock: server}
		cache := newTokenCache(Config{Objects: objects, Clock: machine})
		pod, key := podWith(projectedVolume(tokenSource("token", "", nil))), tokenKey{pod: "u", seconds: 3600}
		get := func(when string, want int) {
			t.Helper()
			_, err := cache.get(t.Context(), pod, key)
			if err != nil || len(objects.tokens) != want {
				t.Errorf("%s, %s: %d tokens were asked for, want %d; %v", name, when, len(objects.tokens), want, err)
			}
		}
		pass := func(d time.Duration) { server.Step(d); machine.Step(d) }
		get("at first", 1)
		pass(40 * time.Minute)
		get("after 40 minutes", 1)
		pass(9 * time.Minute)
		get("after 49 minutes", 2)
		machine.SetTime(real)
		get("when the clock is set", 3)
		machine.SetTime(start)
		get("when it is wrong again", 4)
	}
}
