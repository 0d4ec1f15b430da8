package share

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var begin = time.Unix(1e9, 0)

func TestShares(t *testing.T) {
	s := New(600) // 10 a second
	at := func(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }
	wait := func(seconds float64, writer string, want time.Duration) {
		t.Helper()
		got := s.Wait(at(seconds), writer)
		if got < want || got > want+200*time.Millisecond {
			t.Errorf("after %v s %s waits %v, want %v", seconds, writer, got, want)
		}
	}
	wait(0, "a", 0)
	s.Wrote(at(0), "a", 599)
	wait(0, "a", 0)
	s.Wrote(at(0), "a", 101)
	wait(0, "a", 10*time.Second)
	wait(0, "b", 0)
	wait(5, "a", 5*time.Second)
	wait(11, "a", 0)
	s.Wrote(at(11), "a", 1000)
	wait(11, "a", 99*time.Second)
	wait(-3600, "a", 99*time.Second)
	wait(1000, "a", 0)
	s.Wrote(at(1000), "a", 600) // it has saved no more than its share
	wait(1000, "a", 0)
	wait(1000.05, "a", 0)
	s.Wrote(at(1000), "a", 1)
	wait(1000, "a", 100*time.Millisecond)
}

// Whoever writes whenever it may gets its share in the long run, and neither much more nor much less.
func TestAGreedyWriterGetsItsShare(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	s, written := New(6000), 0
	const minutes = 60
	for now := begin; now.Before(begin.Add(minutes * time.Minute)); {
		wait := s.Wait(now, "greedy")
		if wait == 0 {
			bytes := random.IntN(500)
			s.Wrote(now, "greedy", bytes)
			written += bytes
		}
		now = now.Add(wait + time.Millisecond)
	}
	if most := (minutes+1)*6000 + 500; written > most || written < minutes*6000 {
		t.Errorf("it wrote %d in %d minutes of 6000", written, minutes)
	}
}

// Who wrote little once is forgotten, and who has used its share up is not.
func TestWritersAreForgotten(t *testing.T) {
	s := New(600)
	now := begin
	s.Wrote(now, "greedy", 1e6)
	for i := range 100_000 {
		now = now.Add(100 * time.Millisecond)
		s.Wrote(now, fmt.Sprint("node-", i), 5)
	}
	if len(s.left) > 2*swept {
		t.Errorf("%d writers are remembered", len(s.left))
	}
	if s.Wait(now, "greedy") == 0 {
		t.Error("who has used its share up is forgotten")
	}
}
