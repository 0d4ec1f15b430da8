package volumes

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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

// fleet is nodes with pods, whose tokens are looked at every 75 seconds, each node's at another moment.
type fleet struct {
	server *fakeObjects
	nodes  []*tokenCache
	pods   []*corev1.Pod
	second int
	asked  int
}

const lookEvery, podsOfNode = 75, 4

func newFleet(nodes int) *fleet {
	f := &fleet{server: &fakeObjects{clock: testingclock.NewFakeClock(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))}}
	f.server.asked = func() { f.asked++ }
	for range nodes {
		f.nodes = append(f.nodes, newTokenCache(Config{Objects: f.server, Clock: f.server.clock}))
	}
	for range podsOfNode {
		f.pods = append(f.pods, podWith(projectedVolume(tokenSource("token", "", nil))))
	}
	return f
}

// live lets time pass, some seconds at a time, and returns how much was asked in each minute.
func (f *fleet) live(t *testing.T, long time.Duration, grain int) (minutes []int) {
	t.Helper()
	for range int(long/time.Second) / grain {
		before := f.asked
		for n := range f.nodes {
			if since := (f.second - n%lookEvery + lookEvery) % lookEvery; since >= grain {
				continue
			}
			for p, pod := range f.pods {
				key := tokenKey{pod: types.UID(fmt.Sprint(n, "-", p)), seconds: 3600}
				text, err := f.nodes[n].get(t.Context(), pod, key)
				if err != nil || text == "" {
					t.Fatalf("pod %s has no token: %v", key.pod, err)
				}
			}
		}
		if f.second%60 == 0 || len(minutes) == 0 {
			minutes = append(minutes, 0)
		}
		minutes[len(minutes)-1] += f.asked - before
		f.second += grain
		f.server.clock.Step(time.Duration(grain) * time.Second)
	}
	return minutes
}

func most(of []int) (m int) {
	for _, n := range of {
		m = max(m, n)
	}
	return m
}

// The tokens of all pods have ended when the servers are back after two days. Their pods get others within minutes,
// and the nodes neither ask all in one minute nor again all in one minute when those tokens have aged. While nobody
// answers, a node asks for one of its tokens now and then, not for each.
func TestTokensOfAFleetThatWasAlone(t *testing.T) {
	const nodes, tokens = 300, 300 * podsOfNode
	f := newFleet(nodes)
	f.live(t, 10*time.Minute, 1)
	if f.asked != tokens {
		t.Fatalf("%d tokens were asked for at first, want %d", f.asked, tokens)
	}

	f.server.tokenErr = errors.New("network is unreachable")
	f.asked = 0
	f.live(t, 48*time.Hour, 15)
	if each := f.asked / nodes; each > 48*60/2 || each < 48*60/6 {
		t.Errorf("each node asked %d times in two days, want once in 2 to 4 minutes and a look", each)
	}

	f.server.tokenErr, f.asked = nil, 0
	minutes := f.live(t, 7*time.Minute, 1)
	if f.asked != tokens {
		t.Errorf("7 minutes after the return %d of %d tokens are new: %v", f.asked, tokens, minutes)
	}
	if m := most(minutes); m > tokens*2/5 {
		t.Errorf("%d of %d tokens were asked for in one minute: %v", m, tokens, minutes)
	}
	f.asked = 0
	minutes = f.live(t, 50*time.Minute, 1)
	if m := most(minutes); m > tokens/5 || f.asked < tokens {
		t.Errorf("of the next %d tokens %d were asked for in one minute: %v", f.asked, m, minutes)
	}
}

// An account, an audience or a right can be gone for a while. The token that a pod has serves until its end, and then
// its volume says why there is no other; what is wrong is asked again every few minutes, and mended soon after.
func TestTokensThatAreRefused(t *testing.T) {
	accounts := corev1.Resource("serviceaccounts")
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"the account is gone":          {apierrors.NewNotFound(accounts, "robot"), true},
		"the node may not":             {apierrors.NewForbidden(accounts, "robot", errors.New("no")), true},
		"the audience is not allowed":  {apierrors.NewBadRequest("audience"), true},
		"the pod is another":           {apierrors.NewConflict(accounts, "robot", errors.New("uid")), true},
		"the node has to join again":   {apierrors.NewUnauthorized("expired"), false},
		"the server has too much work": {apierrors.NewTooManyRequests("later", 1), false},
		"the server starts":            {apierrors.NewServiceUnavailable("starting"), false},
		"nobody answers":               {errors.New("network is unreachable"), false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))
			asked := 0
			objects := &fakeObjects{clock: clock, asked: func() { asked++ }}
			cache := newTokenCache(Config{Objects: objects, Clock: clock})
			pod, key := podWith(projectedVolume(tokenSource("token", "", nil))), tokenKey{pod: "u", seconds: 3600}
			first, err := cache.get(t.Context(), pod, key)
			if err != nil {
				t.Fatal(err)
			}
			objects.tokenErr, asked = c.err, 0
			for minute := 1; minute <= 180; minute++ {
				clock.Step(time.Minute)
				text, err := cache.get(t.Context(), pod, key)
				if ended := minute >= 60; c.refused && ended {
					if !errors.Is(err, c.err) {
						t.Fatalf("after %d minutes the volume says %v, want %v", minute, err, c.err)
					}
				} else if text != first || err != nil {
					t.Fatalf("after %d minutes the pod has %q, %v; want its first token", minute, text, err)
				}
			}
			if asked > 140/2+2 || asked < 140/5 {
				t.Errorf("the server was asked %d times in 138 minutes", asked)
			}
			objects.tokenErr = nil
			mended := 0
			for text := first; (text == first || err != nil) && mended < 10; mended++ {
				clock.Step(time.Minute)
				text, err = cache.get(t.Context(), pod, key)
			}
			if mended > 5 {
				t.Errorf("a new token came %d minutes after it could be had", mended)
			}

			// What failed before says nothing about the next time.
			clock.Step(50 * time.Minute)
			objects.tokenErr, asked = c.err, 0
			for range 3 {
				_, _ = cache.get(t.Context(), pod, key)
				clock.Step(time.Minute)
			}
			if asked < 2 {
				t.Error("the first pause after a token that came is as long as the last one before it")
			}
		})
	}
}

// A clock that is set back does not make a pause longer.
func TestTokenPausesByAWrongClock(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))
	objects := &fakeObjects{clock: clock}
	cache := newTokenCache(Config{Objects: objects, Clock: clock})
	pod, key := podWith(projectedVolume(tokenSource("token", "", nil))), tokenKey{pod: "u", seconds: 3600}
	first, err := cache.get(t.Context(), pod, key)
	if err != nil {
		t.Fatal(err)
	}
	clock.Step(50 * time.Minute)
	objects.tokenErr = errors.New("network is unreachable")
	_, err = cache.get(t.Context(), pod, key)
	if err != nil {
		t.Fatal(err)
	}
	objects.tokenErr = nil
	clock.SetTime(clock.Now().AddDate(-20, 0, 0))
	text, err := cache.get(t.Context(), pod, key)
	if text == first || err != nil {
		t.Errorf("after the clock was set back the pod has %q, %v", text, err)
	}
}

// Attempts of several pods at once are one, whose failure makes the pause of the node no longer.
func TestAttemptsAtOnceAreOne(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))
	objects := &fakeObjects{clock: clock}
	cache := newTokenCache(Config{Objects: objects, Clock: clock})
	pod := podWith(projectedVolume(tokenSource("token", "", nil)))
	asked, next := 0, 0
	get := func(i int) {
		_, err := cache.get(t.Context(), pod, tokenKey{pod: types.UID(fmt.Sprint(i)), seconds: 3600})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 6 {
		get(i)
	}
	clock.Step(50 * time.Minute)
	objects.tokenErr = errors.New("network is unreachable")
	objects.asked = func() { // the next pod asks while this one waits for the answer
		asked++
		if next++; next < 6 {
			get(next)
		}
	}
	get(0)
	if asked != 6 {
		t.Fatalf("%d pods asked", asked)
	}
	clock.Step(time.Minute)
	next = 6
	get(0)
	if asked != 7 {
		t.Error("the first pause is longer than a minute")
	}
}
