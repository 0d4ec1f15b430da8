package variants

import (
	"testing"
	"time"
)

// An API that does not answer is asked again after longer and longer, and nodes are changed without its word in the
// end. What it refuses is asked again after a minute, what it takes never.
func TestTrialsAreTriedAgain(t *testing.T) {
	w := newWorld()
	w.Tries = true
	w.setNode("n", "l", 4)
	w.begin()
	w.make("p", "n", w.newest())
	w.setVariant("l", "l", 0, 5, 0)
	w.settle()
	now := start
	ask := func(after time.Duration) *Trial {
		t.Helper()
		w.Tick(now.Add(after - time.Millisecond))
		if early := w.Trials(); len(early) > 0 {
			t.Errorf("it is tried before %s", after)
		}
		now = now.Add(after)
		w.Tick(now)
		trials := w.Trials()
		if len(trials) != 1 || trials[0].Node != "n" || trials[0].Variant != "l" {
			t.Fatalf("trials are %+v", trials)
		}
		if again := w.Trials(); len(again) > 0 {
			t.Error("it is tried twice at once")
		}
		return trials[0]
	}
	first := w.Trials()
	if len(first) != 1 {
		t.Fatalf("trials are %+v", first)
	}
	w.TellVerdict(Verdict{Trial: first[0], Unsure: true})
	for i := 1; i < mostTrials; i++ {
		w.settle()
		if w.newest() != "t" {
			t.Fatal("nodes are changed before the API has answered")
		}
		if at, ok := w.NextTick(); !ok || !at.Equal(now.Add(time.Second<<i)) {
			t.Errorf("the next turn is at %s", at)
		}
		w.TellVerdict(Verdict{Trial: ask(time.Second << i), Unsure: true})
	}
	w.settle()
	if variantsOf(w.newest()) == "" {
		t.Error("an API that never answers has variants wait for ever")
	}

	w.setVariant("l", "l", 0, 6, 0)
	w.settle()
	had := w.newest()
	w.TellVerdict(Verdict{Trial: w.Trials()[0], Refused: "no"})
	w.settle()
	if w.newest() != had || w.sets["ds"].told.Held {
		t.Error("what is refused is given to nodes, or they are held with what they have")
	}
	w.TellVerdict(Verdict{Trial: ask(triedAgain)})
	w.settle()
	if w.newest() == had {
		t.Error("what is taken is not given to nodes")
	}
	w.Tick(now.Add(time.Hour))
	if more := w.Trials(); len(more) > 0 {
		t.Errorf("what was taken is tried again: %+v", more)
	}
}
