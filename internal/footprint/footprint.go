package footprint

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// soon is when that is done for the first time: what the start has touched is then not needed any more.
	soon = 20 * time.Second
	// period is how often memory is given back. It costs an agent some 30 ms of processor time.
	period = 2 * time.Minute
	// stripe is how much of the program is mapped at most when one page of it is used: four pages.
	stripe = 16 << 10
	// worthwhile is what a process of that kind gives back at least, or it gives back nothing.
	worthwhile = 16 << 20
)

// lookEvery is how often a server looks how it is.
const lookEvery = 10 * time.Second

// Habit is how a process of one kind uses memory.
type Habit struct {
	// collectAt is by how many percent a small heap grows between two collections, and atMost a large one, unless GOGC
	// says otherwise.
	collectAt, atMost int
	// whenIdle means that memory is given back only after a time with little to do. To find what is not used costs a look
	// at all that is, which is much for a process that holds much, and what is given back in the middle of work is wanted
	// again.
	whenIdle bool
	// atOnce means that what the start has touched of the program is given back before there is much else in memory.
	atOnce bool
}

// Agent is the habit of an agent, Server that of a control plane, and Controller that of a controller alone.
var (
	Agent      = Habit{collectAt: 25, atMost: 25}
	Server     = Habit{collectAt: 60, atMost: 150, whenIdle: true}
	Controller = Habit{collectAt: 100, atMost: 150, whenIdle: true, atOnce: true}
)

const (
	// small is a heap whose size matters more than the time that it takes to look through it.
	small = 256 << 20
	// relaxEach is by how much a heap is larger that may grow by ten percent more, and room what it may grow by for that.
	relaxEach = 100 << 20
	room      = 1536 << 20
)

// percent is by how much a heap with so much in use grows until it is collected. With it grows what a collection costs:
// with ten thousands of nodes collections were half of all that a server did.
func (h Habit) percent(live uint64) int {
	over, fits := live-min(live, small), int(room*100/max(live, 1))
	return max(min(h.collectAt+10*int(over/relaxEach), h.atMost, fits), h.collectAt)
}

// every is how often the process looks how it is.
func (h Habit) every() time.Duration {
	if h.whenIdle {
		return lookEvery
	}
	return period
}

// watch is what was seen of the heap.
type watch struct {
	habit  Habit
	before heap
	// busy is set when there was much to do since memory was given back.
	busy bool
}

// givesBack says whether memory is to be given back; due says that it is time to.
func (w *watch) givesBack(now heap, due bool) bool {
	if !w.habit.whenIdle {
		return due
	}
	idle := now.idle(w.before)
	w.before = now
	if !idle {
		w.busy = true
		return false
	}
	if unused := now.unused(); unused < worthwhile || !due && (!w.busy || unused < now.live/4) {
		return false
	}
	w.busy = false
	return true
}

// Keep gives back the process's unused memory until ctx ends. It also sets how often the whole process's heap is
// collected, so it is for a process that is of that kind and nothing else.
func Keep(ctx context.Context, habit Habit, clk clock.WithTicker) {
	percent, ours := habit.collectAt, os.Getenv("GOGC") == ""
	if ours {
		debug.SetGCPercent(percent)
	}
	logger := klog.FromContext(ctx)
	if err := eachOfProgram(divide); err != nil {
		logger.Info("The program's file is mapped in large pieces, so that more of it is resident than is used", "err", err)
	}
	if habit.atOnce {
		_ = eachOfProgram(drop) // what comes of it is told the next time
	}
	timer := clk.NewTimer(soon)
	defer timer.Stop()
	w := watch{habit: habit, before: look(), busy: true}
	last := clk.Now().Add(-period)
	for droppable := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
			timer.Reset(habit.every())
		}
		now := look()
		if next := habit.percent(now.live); ours && next != percent {
			percent = next
			debug.SetGCPercent(percent)
		}
		due := clk.Since(last) >= period
		if w.givesBack(now, due) {
			debug.FreeOSMemory()
		}
		if !due {
			continue
		}
		last = clk.Now()
		if !droppable {
			continue
		}
		if err := eachOfProgram(drop); err != nil {
			// The kernel lacks the file or the call, and won't have them later.
			logger.Info("Memory of the program's file is not given back", "err", err)
			droppable = false
		}
	}
}

// heap is what the runtime says of it, in bytes.
type heap struct {
	// live is what the last collection found in use, objects what there is with what was let go since, and free what
	// belongs to no object and was not given back.
	live, objects, free uint64
	// allocated counts since the start of the process.
	allocated uint64
}

func look() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return heap{
		live:      samples[0].Value.Uint64(),
		objects:   samples[1].Value.Uint64(),
		free:      samples[2].Value.Uint64(),
		allocated: samples[3].Value.Uint64(),
	}
}

// idle says whether little was made since the last look: in two minutes not much more than there is.
func (h heap) idle(since heap) bool { return h.allocated-since.allocated < h.live/8 }

// unused is about what a collection would find to give back.
func (h heap) unused() uint64 { return h.free + h.objects - min(h.live, h.objects) }

// eachOfProgram does something to each mapping of the program's file that nobody can have changed.
func eachOfProgram(do func(mapping) error) error {
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read the process's mappings: %w", err)
	}
	defer func() { _ = file.Close() }()
	all, err := parse(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file.Name(), err)
	}
	for _, m := range ofProgram(all, reflect.ValueOf(eachOfProgram).Pointer()) {
		if err := do(m); err != nil {
			return err
		}
	}
	return nil
}

// divide makes many small mappings of a large one. Around a page that is used the kernel maps as much as its page cache
// happens to hold in one piece, up to megabytes, but never beyond the mapping. Neighbours stay apart as long as
// something differs, and a setting for huge pages does no harm: none fits into a stripe.
func divide(m mapping) error {
	// Every second stripe by its address, so that dividing again changes nothing.
	for at := m.start &^ (2*stripe - 1); at < m.end; at += 2 * stripe {
		start, end := max(at, m.start), min(at+stripe, m.end)
		if start >= end {
			continue
		}
		if err := advise(start, end, unix.MADV_NOHUGEPAGE); err != nil {
			return err
		}
	}
	return nil
}

// drop unmaps the pages of a mapping; those that are used come back by themselves.
func drop(m mapping) error { return advise(m.start, m.end, unix.MADV_DONTNEED) }

// advise is madvise(2) by its number, because unix.Madvise takes a slice, and this is no memory of Go's.
func advise(start, end uintptr, advice uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, advice); errno != 0 {
		return fmt.Errorf("madvise %x-%x %d: %w", start, end, advice, errno)
	}
	return nil
}
