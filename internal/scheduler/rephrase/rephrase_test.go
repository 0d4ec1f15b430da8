package rephrase

import (
	"fmt"
	"testing"
	"time"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return begin.Add(d) }

// One of few pods is told at once; one of many waits for its turn, and is told the last words then, once.
func TestWhoIsToldWhen(t *testing.T) {
	b := New()
	if !b.May("p", "first", 1000, begin) {
		t.Error("a pod that was told nothing is told nothing")
	}
	if !b.May("p", "second", 10, after(100*time.Millisecond)) {
		t.Error("one of ten is not told after 100 ms")
	}
	if _, is := b.Next(); is {
		t.Error("there is something to tell")
	}
	for i, words := range []string{"third", "fourth"} {
		if b.May("p", words, 1000, after(time.Second+time.Duration(i))) {
			t.Errorf("one of a thousand is told after a second: %s", words)
		}
	}
	if at, is := b.Next(); !is || !at.Equal(after(2*time.Second)) {
		t.Errorf("it is looked again at %v, %v", at, is)
	}
	for seconds, want := range map[int]string{1: "map[]", 3: "map[]"} {
		if got := fmt.Sprint(b.Due(1000, after(time.Duration(seconds)*time.Second))); got != want {
			t.Errorf("after %d s %s is told", seconds, got)
		}
	}
	if got := fmt.Sprint(b.Due(1000, after(10*time.Second+100*time.Millisecond))); got != "map[p:fourth]" {
		t.Errorf("after 10 s %s is told", got)
	}
	if got := b.Due(1000, after(time.Minute)); len(got) > 0 {
		t.Errorf("%v is told twice", got)
	}
	if b.May("p", "fifth", 1000, after(11*time.Second)) {
		t.Error("it is told again a second after it was")
	}
	if got := b.Due(10, after(13*time.Second)); got["p"] != "fifth" {
		t.Errorf("when others have a node %v is told", got)
	}
}

func TestNobodyWaitsForLongerThanMinutes(t *testing.T) {
	b := New()
	b.Said("p", begin)
	if b.May("p", "a", 1_000_000, after(4*time.Minute)) || !b.May("p", "b", 1_000_000, after(5*time.Minute)) {
		t.Error("one of a million is not told after five minutes, or before")
	}
}

// What is new is told at once, and what was kept is old then. Pods that have a node are forgotten.
func TestWhatIsOld(t *testing.T) {
	b := New()
	b.Said("p", begin)
	b.May("p", "old", 1000, after(time.Second))
	b.Said("p", after(2*time.Second))
	if _, is := b.Next(); is {
		t.Error("what is old is kept")
	}
	b.May("p", "a", 1000, after(3*time.Second))
	b.Old("p")
	if got := b.Due(1000, after(time.Hour)); len(got) > 0 {
		t.Errorf("%v is told, and is old", got)
	}
	b.May("p", "a", 1_000_000, after(time.Minute))
	b.Forget("p")
	if len(b.said)+len(b.kept) > 0 {
		t.Errorf("of a pod that has a node %d and %d are kept", len(b.said), len(b.kept))
	}
}
