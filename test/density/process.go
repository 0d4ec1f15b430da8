package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// watch looks at a process for a while: the most memory of each kind that it had, and the processor time that it spent.
func watch(ctx context.Context, pid int, duration time.Duration) (largest memory, spent time.Duration, err error) {
	before, err := processorTime(pid)
	if err != nil {
		return memory{}, 0, err
	}
	const interval = 5 * time.Second
	for end := time.Now().Add(duration); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return memory{}, 0, ctx.Err()
		case <-time.After(min(interval, time.Until(end))):
		}
		now, err := memoryOf(pid)
		if err != nil {
			return memory{}, 0, err
		}
		largest = memory{
			max(largest.resident, now.resident),
			max(largest.anonymous, now.anonymous),
			max(largest.share, now.share),
		}
	}
	after, err := processorTime(pid)
	return largest, after - before, err
}

// processorTime is what the process spent, for itself and for the kernel's work for it.
func processorTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat of process %d is %q", pid, data)
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err, err2)
}

// memory is what a process has, in bytes: what is resident, as ps shows it; what of that is no part of a file; and its
// share, in which what several processes have is divided among them.
type memory struct{ resident, anonymous, share int64 }

func memoryOf(pid int) (memory, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	field := func(name string) int64 {
		_, rest, _ := strings.Cut(string(data), "\n"+name+":")
		var kb int64
		_, _ = fmt.Sscan(rest, &kb)
		return kb << 10
	}
	return memory{resident: field("Rss"), anonymous: field("Anonymous"), share: field("Pss")}, nil
}
