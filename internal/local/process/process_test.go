package process

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	tail := " 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1000 10"
	for _, tc := range []struct {
		name, stat string
		parent     int
		start      uint64
		running    bool
		fails      bool
	}{
		{"sleeping", "7 (pause) S 5" + tail, 5, 4242, true, false},
		{"a name with all sorts", "7 (a) S 9 (b) R 5" + tail, 5, 4242, true, false},
		{"zombie", "7 (pause) Z 5" + tail, 5, 4242, false, false},
		{"exec in a program of several threads", "7 (everynode) Z 5" + strings.Replace(tail, " 20 0 1 0 ", " 20 0 2 0 ", 1),
			5, 4242, true, false},
		{"cut off", "7 (pause) S 5", 0, 0, false, true},
		{"nonsense", "", 0, 0, false, true},
	} {
		parent, start, running, err := parseStat(tc.stat)
		if parent != tc.parent || start != tc.start || running != tc.running || (err != nil) != tc.fails {
			t.Errorf("%s: got %d %d %v %v", tc.name, parent, start, running, err)
		}
	}
}

func TestProcessIdentity(t *testing.T) {
	self, err := Identify(os.Getpid())
	if err != nil || !self.Alive() {
		t.Fatalf("this process is not alive: %v, %v", self, err)
	}
	other := Process{PID: self.PID, Start: self.Start + 1}
	if other.Alive() {
		t.Error("a process with the same number and another start is taken for this one")
	}
	if err := other.Kill(t.Context()); err != nil {
		t.Errorf("a process that has ended: %v", err) // and this test goes on
	}
}

func TestNextPause(t *testing.T) {
	var pause time.Duration
	var got []time.Duration
	for range 7 {
		pause = NextPause(pause, time.Second)
		got = append(got, pause)
	}
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30}
	for i := range want {
		if got[i] != want[i]*time.Second {
			t.Fatalf("pauses are %v, want %v seconds", got, want)
		}
	}
	if p := NextPause(30*time.Second, time.Hour); p != firstPause {
		t.Errorf("after a good life the pause is %s", p)
	}
}

func TestContainersOf(t *testing.T) {
	all := []relative{
		{Process{1, 1}, 0, "systemd"},
		{Process{50, 1}, 40, "pause"}, // the node's process 1
		{Process{60, 1}, 50, "containerd-shim"},
		{Process{61, 1}, 60, "pause"},
		{Process{62, 1}, 60, "demo"},
		{Process{63, 1}, 62, "demo"},
		{Process{70, 1}, 1, "containerd-shim"}, // of the host's own containerd
		{Process{71, 1}, 70, "postgres"},
	}
	if got := containersOf(50, all); len(got) != 1 || got[0].PID != 62 {
		t.Errorf("the node's containers are %v, want process 62", got)
	}
}

// FuzzParseStat reads what the system says of processes. It survives all of it, and makes no start up.
func FuzzParseStat(f *testing.F) {
	for _, stat := range []string{
		"", "1 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0", "1 (a) b) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 100 0",
		") ", "1 (", "\x00",
	} {
		f.Add(stat)
	}
	f.Fuzz(func(t *testing.T, stat string) {
		if _, start, _, err := parseStat(stat); err == nil && !strings.Contains(stat, strconv.FormatUint(start, 10)) {
			t.Errorf("%q has the start %d", stat, start)
		}
	})
}
