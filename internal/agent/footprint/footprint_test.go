package footprint

import (
	"context"
	"os"
	"reflect"
	"runtime"
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
		Keep(ctx, clock)
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
