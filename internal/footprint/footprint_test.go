package footprint

import (
	"context"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

const example = `00400000-035ab000 r-xp 00000000 fe:01 4711                               /usr/bin/everynode
Size:              50860 kB
Rss:               42156 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
035ab000-07c7d000 r--p 031ab000 fe:01 4711                               /usr/bin/everynode
Anonymous:             0 kB
07c7d000-07dd4000 rw-p 0787d000 fe:01 4711                               /usr/bin/everynode
Anonymous:           320 kB
c000000000-c001400000 rw-p 00000000 00:00 0 [anon: Go: heap]
Anonymous:         13372 kB
7f0000000000-7f0000010000 r--p 00000000 fe:01 4712                       /etc/some file
Anonymous:             0 kB
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]
`

func TestOfProgram(t *testing.T) {
	text := mapping{start: 0x400000, end: 0x35ab000, readOnly: true, file: "fe:01 4711"}
	constants := mapping{start: 0x35ab000, end: 0x7c7d000, readOnly: true, file: "fe:01 4711"}
	tests := []struct {
		name  string
		smaps string
		code  uintptr
		want  []mapping
	}{
		{"code and constants, but no variables and no other file", example, 0x401000, []mapping{text, constants}},
		{"the last address of the code", example, 0x35aafff, []mapping{text, constants}},
		{"code with a breakpoint", strings.Replace(example, "Anonymous:             0 kB", "Anonymous:             4 kB", 1), 0x401000, []mapping{constants}},
		{"code with a breakpoint that is swapped out", strings.Replace(example, "Anonymous:             0 kB", "Anonymous:             0 kB\nSwap:                  4 kB", 1), 0x401000, []mapping{constants}},
		{"shared with other processes", strings.Replace(example, "r--p 031ab000", "r--s 031ab000", 1), 0x401000, []mapping{text}},
		{"code that comes from no file", example, 0x7ffc00000000, nil},
		{"an address that is not mapped", example, 1, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			all, err := parse(strings.NewReader(test.smaps))
			if err != nil || len(all) != 6 {
				t.Fatalf("parse: %d mappings, %v", len(all), err)
			}
			if got := ofProgram(all, test.code); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	for _, smaps := range []string{"what is this\n", "x-y r-xp 0 fe:01 1\n", strings.Replace(example, "320 kB", "many kB", 1)} {
		if _, err := parse(strings.NewReader(smaps)); err == nil {
			t.Errorf("no error for %.40q", smaps)
		}
	}
}

// TestDrop drops the test's own code, of which what this needs comes back.
func TestDrop(t *testing.T) {
	count := func() (n int) {
		if err := eachOfProgram(func(mapping) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n < 2 {
		t.Fatalf("the program has %d mappings, want its code and its constants", n)
	}
	before := resident(t)
	if err := eachOfProgram(divide); err != nil {
		t.Fatal(err)
	}
	if n := count(); n < 50 {
		t.Errorf("the program is divided into %d mappings", n)
	}
	if err := eachOfProgram(drop); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after >= before {
		t.Errorf("%d bytes of files are resident after it, %d before", after, before)
	}
}

// TestKeep gives memory back each time the clock says so, and ends with its context.
func TestKeep(t *testing.T) {
	t.Setenv("GOGC", "100") // the other tests' heap is not the agent's
	clock := testingclock.NewFakeClock(time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		Keep(ctx, Agent, clock)
		close(done)
	}()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	for before := stats.NumForcedGC; stats.NumForcedGC < before+2; runtime.ReadMemStats(&stats) {
		if clock.HasWaiters() {
			clock.Step(period)
		}
		runtime.Gosched()
	}
	cancel()
	<-done
}

// TestServerGivesBackWhenIdle has work go on and end.
func TestServerGivesBackWhenIdle(t *testing.T) {
	const mb = 1 << 20
	before := heap{live: 200 * mb, objects: 300 * mb, free: 10 * mb, allocated: 5000 * mb}
	for _, test := range []struct {
		name   string
		now    heap
		idle   bool
		unused uint64
	}{
		{"nothing happens", heap{live: 200 * mb, objects: 310 * mb, free: 5 * mb, allocated: 5010 * mb}, true, 115 * mb},
		{"it works", heap{live: 200 * mb, objects: 310 * mb, free: 5 * mb, allocated: 5200 * mb}, false, 115 * mb},
		{"it holds less since", heap{live: 20 * mb, objects: 30 * mb, free: 200 * mb, allocated: 5002 * mb}, true, 210 * mb},
		{"just collected, and counted at different moments", heap{live: 200 * mb, objects: 199 * mb, allocated: 5010 * mb}, true, 0},
	} {
		if got := test.now.idle(before); got != test.idle {
			t.Errorf("%s: idle %v, want %v", test.name, got, test.idle)
		}
		if got := test.now.unused(); got != test.unused {
			t.Errorf("%s: %d bytes unused, want %d", test.name, got, test.unused)
		}
	}
	// Right after much work it gives back at once, and then each time it is due.
	w := watch{habit: Server, before: before}
	idle := before
	for i, step := range []struct {
		made, free uint64
		due, gives bool
	}{
		{10, 5, false, false},                             // a little is always unused
		{400, 200, false, false}, {400, 200, true, false}, // it works
		{10, 200, false, true}, {10, 200, false, false}, {10, 5, true, true}, {10, 5, true, true},
	} {
		idle.allocated += step.made * mb
		idle.free = step.free * mb
		if got := w.givesBack(idle, step.due); got != step.gives {
			t.Errorf("step %d: gives back: %v, want %v", i, got, step.gives)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // or what is let go could be counted as alive
	runtime.GC()
	for range 64 {
		waste = make([]byte, mb)
	}
	if now := look(); now.unused() < 32*mb || now.allocated < 64*mb {
		t.Errorf("after 64 MB were let go the runtime is seen to have %+v", now)
	}
}

// TestLargeHeapsAreCollectedSeldomer, and small ones as their habit is.
func TestLargeHeapsAreCollectedSeldomer(t *testing.T) {
	const mb = 1 << 20
	for live, want := range map[uint64]int{0: 60, 210 * mb: 60, 256 * mb: 60, 760 * mb: 110, 1200 * mb: 128, 2048 * mb: 75, 100_000 * mb: 60} {
		if got := Server.percent(live); got != want {
			t.Errorf("a server's heap with %d MB in use may grow by %d %%, want %d", live/mb, got, want)
		}
		if got := Agent.percent(live); got != 25 {
			t.Errorf("an agent's heap with %d MB in use may grow by %d %%", live/mb, got)
		}
	}
}

// waste is something that the compiler cannot do without.
var waste []byte

// resident is how many bytes of the mapped files are in memory.
func resident(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if size, ok := strings.CutPrefix(line, "RssFile:"); ok {
			var kb int64
			for _, r := range size {
				if '0' <= r && r <= '9' {
					kb = 10*kb + int64(r-'0')
				}
			}
			return kb << 10
		}
	}
	t.Fatal("the kernel does not say how much is resident")
	return 0
}
