package fetching

import (
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// look is one moment of a node's life: what it says then, so many seconds after noon, and what follows.
type look struct {
	second  int
	reason  fetch.Reason
	of      string // the revision that it was asked for
	askedAt int
	said    int // the second since which it says that; none without a reason
	change  func(*Input)
	wish    standing.Wish
	images  standing.HasFetched
	until   int // the second; -1 for none
}

func TestWhatANodeIsWaitedFor(t *testing.T) {
	paused := func(in *Input) { in.May = false }
	foretells := func(in *Input) { in.Foretells = true }
	opened := func(second int) func(*Input) {
		return func(in *Input) {
			in.Foretells, in.Begun, in.Opened = true, true, noon.Add(time.Duration(second)*time.Second)
		}
	}
	for name, looks := range map[string][]look{
		"it is asked, and has them": {
			{second: 0, wish: standing.Ask, images: standing.Awaited, until: 600},
			{second: 1, of: "b", askedAt: 1, wish: standing.Keep, images: standing.Awaited, until: 600},
			{second: 9, of: "b", askedAt: 1, reason: fetch.Fetched, wish: standing.Keep, images: standing.HasImages, until: -1},
		},
		"it never answers": {
			{second: 0, wish: standing.Ask, images: standing.Awaited, until: 600},
			{second: 599, of: "b", askedAt: 1, wish: standing.Keep, images: standing.Awaited, until: 600},
			{second: 600, of: "b", askedAt: 1, wish: standing.Keep, images: standing.NotAwaited, until: -1},
		},
		"nobody can ask it": {
			{second: 0, wish: standing.Ask, images: standing.Awaited, until: 600},
			{second: 600, wish: standing.Ask, images: standing.NotAwaited, until: -1},
		},
		"it fails by itself, and that lasts": {
			{second: 0, wish: standing.Ask, images: standing.Awaited, until: 600},
			{second: 10, of: "b", askedAt: 1, reason: fetch.NoSpace, wish: standing.Keep, images: standing.Awaited, until: 40},
			{second: 39, of: "b", askedAt: 1, reason: fetch.NoSpace, wish: standing.Keep, images: standing.Awaited, until: 40},
			{second: 40, of: "b", askedAt: 1, reason: fetch.Unreachable, wish: standing.Keep, images: standing.NodeCannot, until: -1},
			{second: 5000, of: "b", askedAt: 1, reason: fetch.NoSpace, wish: standing.Keep, images: standing.NodeCannot, until: -1},
			{second: 5001, of: "b", askedAt: 1, reason: fetch.Fetched, wish: standing.Keep, images: standing.HasImages, until: -1},
		},
		"the revision's images are not there, and then are, and then are not": {
			{second: 0, of: "b", reason: fetch.NotFound, wish: standing.Keep, images: standing.Awaited, until: 30},
			{second: 20, of: "b", wish: standing.Keep, images: standing.Awaited, until: 600},
			{second: 40, of: "b", reason: fetch.NotFound, wish: standing.Keep, images: standing.Awaited, until: 70},
			{second: 70, of: "b", reason: fetch.Unauthorized, wish: standing.Keep, images: standing.NobodyCan, until: -1},
		},
		"it may not read the secrets": {
			{second: 0, of: "b", reason: fetch.NoSecret, wish: standing.Keep, images: standing.HasImages, until: -1},
		},
		"what it says of another revision is no answer": {
			{second: 0, of: "a", reason: fetch.Fetched, wish: standing.Ask, images: standing.Awaited, until: 600},
		},
		"an answer from before the target was tried again is none": {
			{second: 90, of: "b", askedAt: 1, reason: fetch.NotFound, change: func(in *Input) { in.Since = noon.Add(time.Minute) },
				wish: standing.Ask, images: standing.Awaited, until: 690},
		},
		"nothing may begin: it is not asked, and nobody's patience ends": {
			{second: 0, change: paused, wish: standing.Keep, images: standing.Awaited, until: -1},
			{second: 5000, change: paused, wish: standing.Keep, images: standing.Awaited, until: -1},
			{second: 5001, wish: standing.Ask, images: standing.Awaited, until: 5601},
		},
		"nothing may begin for a while, and it was not asked before": {
			{second: 0, wish: standing.Ask, images: standing.Awaited, until: 600},
			{second: 10, change: paused, wish: standing.Keep, images: standing.Awaited, until: -1},
			{second: 5000, change: paused, wish: standing.Keep, images: standing.Awaited, until: -1},
			{second: 5001, wish: standing.Ask, images: standing.Awaited, until: 5601},
		},
		"nothing may begin for a while, and it was asked before": {
			{second: 0, of: "b", wish: standing.Keep, images: standing.Awaited, until: 600},
			{second: 10, of: "b", change: paused, wish: standing.Keep, images: standing.Awaited, until: 600},
			{second: 600, of: "b", change: paused, wish: standing.Keep, images: standing.NotAwaited, until: -1},
		},
		"it has no daemon to lose": {
			{second: 0, change: func(in *Input) { in.Free = true }, wish: standing.Ask, images: standing.NotAwaited, until: -1},
			{second: 10, of: "b", askedAt: 1, reason: fetch.NotFound, change: func(in *Input) { in.Free = true }, wish: standing.Keep,
				images: standing.NotAwaited, until: 40}, // then it is the revision's fault
			{second: 11, of: "b", askedAt: 1, change: func(in *Input) { in.Free = true }, wish: standing.Keep,
				images: standing.NotAwaited, until: -1},
		},
		"its daemon stays for a failure although it may be lost": {
			{second: 0, of: "b", reason: fetch.NotFound, wish: standing.Keep, images: standing.Awaited, until: 30},
			{second: 30, of: "b", reason: fetch.NotFound, change: func(in *Input) { in.Free = true }, wish: standing.Keep,
				images: standing.NobodyCan, until: -1},
		},
		"another target": {
			{second: 0, of: "b", reason: fetch.NotFound, wish: standing.Keep, images: standing.Awaited, until: 30},
			{second: 40, of: "b", reason: fetch.NotFound, change: func(in *Input) { in.Target = "c" }, wish: standing.Ask,
				images: standing.Awaited, until: 640},
		},
		"it is not to have them any more, and then again": {
			{second: 0, of: "b", reason: fetch.NotFound, wish: standing.Keep, images: standing.Awaited, until: 30},
			{second: 20, of: "b", reason: fetch.NotFound, change: func(in *Input) { in.Wanted = false }, wish: standing.NoWish,
				images: standing.NotAwaited, until: -1},
			{second: 40, of: "b", reason: fetch.NotFound, wish: standing.Keep, images: standing.Awaited, until: 70},
		},
		"a process that starts in the middle waits again": {
			{second: 400, of: "b", askedAt: 1, wish: standing.Keep, images: standing.Awaited, until: 1000},
		},
		"a forecast believes the time": {
			{second: 400, of: "b", askedAt: 1, change: foretells, wish: standing.Keep,
				images: standing.Awaited, until: 601},
		},
		"a process that starts in the middle looks for itself how long it fails": {
			{second: 400, of: "b", askedAt: 1, said: 300, reason: fetch.NoSpace, wish: standing.Keep, images: standing.Awaited, until: 430},
		},
		"a forecast believes since when its step is under way": {
			{second: 400, change: opened(100), wish: standing.Ask, images: standing.Awaited, until: 700},
			{second: 700, change: opened(100), wish: standing.Ask, images: standing.NotAwaited, until: -1},
		},
		"a forecast long after that": {
			{second: 5000, change: opened(100), wish: standing.Ask, images: standing.NotAwaited, until: -1},
		},
		"a forecast by a step that began in time to come": {
			{second: 400, change: opened(900), wish: standing.Ask, images: standing.Awaited, until: 1000},
		},
		"a forecast after the target was tried again": {
			{second: 5000, change: func(in *Input) { opened(100)(in); in.Since = noon.Add(4900 * time.Second) },
				wish: standing.Ask, images: standing.Awaited, until: 5500},
		},
		"a forecast for the next step": {
			{second: 5000, change: func(in *Input) { opened(100)(in); in.Begun = false }, wish: standing.Ask, images: standing.Awaited, until: 5600},
		},
		"a forecast while nothing may begin": {
			{second: 5000, change: func(in *Input) { opened(100)(in); in.May = false }, wish: standing.Keep, images: standing.Awaited, until: -1},
		},
		"a process that starts again long after the step began": {
			{second: 5000, change: func(in *Input) { opened(100)(in); in.Foretells = false }, wish: standing.Ask, images: standing.Awaited, until: 5600},
		},
		"a forecast believes how long it has failed": {
			{second: 400, of: "b", askedAt: 1, said: 380, reason: fetch.NoSpace, change: foretells, wish: standing.Keep,
				images: standing.Awaited, until: 410},
			{second: 410, of: "b", askedAt: 1, said: 380, reason: fetch.Unreachable, change: foretells, wish: standing.Keep,
				images: standing.NodeCannot, until: -1},
			{second: 411, of: "b", askedAt: 1, wish: standing.Keep, change: foretells, images: standing.Awaited, until: 601},
			{second: 500, of: "b", askedAt: 1, said: 300, reason: fetch.NotFound, change: foretells, wish: standing.Keep,
				images: standing.NobodyCan, until: -1},
		},
		"a forecast does not believe a clock that is ahead": {
			{second: 400, of: "b", askedAt: 1, said: 500, reason: fetch.NoSpace, change: foretells, wish: standing.Keep,
				images: standing.Awaited, until: 430},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var n Node
			for _, l := range looks {
				in := Input{Now: noon.Add(time.Duration(l.second) * time.Second), Wanted: true, May: true, Target: "b",
					Deadline: 10 * time.Minute}
				if l.of != "" {
					in.Says = fetch.Report{Revision: l.of, At: noon.Add(time.Duration(l.askedAt) * time.Second), Reason: l.reason}
					if l.reason != "" {
						in.Says.Answered = noon.Add(time.Duration(l.said) * time.Second)
					}
				}
				if l.change != nil {
					l.change(&in)
				}
				got := n.Look(&in)
				want := standing.Fetching{Wish: l.wish, Images: l.images}
				if l.until >= 0 {
					want.Until = noon.Add(time.Duration(l.until) * time.Second)
				}
				if got != want {
					t.Errorf("second %d: %+v, want %+v", l.second, got, want)
				}
			}
		})
	}
}

// The nodes of a step go together, and who comes later waits for itself alone.
func TestGate(t *testing.T) {
	const patience = 10 * time.Minute
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	var g Gate[int]
	if g.Shut(0) || g.Shut(1) {
		t.Error("it is shut before anybody looked")
	}
	g.Look(1, noon, noon, 3, false, patience, false)
	if !g.Shut(1) || g.Shut(2) {
		t.Errorf("three are awaited: step 1 is shut: %v, step 2: %v", g.Shut(1), g.Shut(2))
	}
	g.Look(1, noon, at(15), 1, true, patience, false) // nothing may begin until now
	g.Look(1, noon, at(34), 1, false, patience, false)
	if !g.Shut(1) {
		t.Error("it opens before twice the patience is over")
	}
	g.Look(1, noon, at(35), 1, false, patience, false)
	if g.Shut(1) {
		t.Error("who never answers keeps it shut for ever")
	}
	g.Look(1, noon, at(36), 2, false, patience, false)
	if g.Shut(1) {
		t.Error("who comes later shuts it")
	}
	g.Look(2, at(40), at(40), 1, false, patience, false)
	if !g.Shut(2) {
		t.Error("the next step begins open")
	}
	g.Look(2, at(40), at(41), 0, false, patience, false)
	if g.Shut(2) {
		t.Error("all have answered, and it is shut")
	}
	g.Look(2, at(40), at(42), 1, false, patience, false)
	if g.Shut(2) {
		t.Error("who comes after all have answered shuts it")
	}
	g.Look(2, at(50), at(50), 1, false, patience, false)
	if !g.Shut(2) {
		t.Error("the same step of another change begins open")
	}
	if g.MayFetch(0) || g.MayFetch(3) || g.IsAhead() {
		t.Error("the next step's nodes may be asked before these are done")
	}
	g.LookAhead(3)
	if !g.MayFetch(3) || g.MayFetch(4) || g.Next() != 3 {
		t.Error("step 3 is not the one whose nodes may be asked")
	}
	g.Look(3, at(60), at(60), 1, false, patience, false)
	if g.IsAhead() {
		t.Error("the one after it may be asked when it has just begun")
	}
}

// Who foretells begins with a step that may have begun long ago.
func TestGateOfAForecast(t *testing.T) {
	const patience = 10 * time.Minute
	for minute, shut := range map[int]bool{19: true, 20: false, 500: false, -1: true} {
		var g Gate[int]
		g.Look(1, noon, noon.Add(time.Duration(minute)*time.Minute), 3, false, patience, true)
		if g.Shut(1) != shut {
			t.Errorf("minute %d: that it is shut is %v", minute, g.Shut(1))
		}
	}
	var g Gate[int]
	g.Look(1, time.Time{}, noon, 3, false, patience, true)
	if !g.Shut(1) {
		t.Error("nobody knows since when, and it is open")
	}
}

func TestWords(t *testing.T) {
	f := standing.Fetching{Wish: standing.Ask, Images: standing.Awaited, Until: noon}
	for want, words := range map[string]string{
		"waited for until 12:00:00 UTC":       Words(&f, "b", true),
		"does not say that it can fetch":      Words(&f, "b", false),
		"not asked for the images":            Words(&standing.Fetching{Images: standing.Awaited}, "b", true),
		"tries to fetch the images":           Words(&standing.Fetching{Images: standing.Awaited, Why: "no such host"}, "b", true),
		"cannot fetch the images of revision": Words(&standing.Fetching{Images: standing.NodeCannot}, "b", true),
	} {
		if !strings.Contains(words, want) {
			t.Errorf("%q does not say %q", words, want)
		}
	}
}
