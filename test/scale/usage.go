package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process uses and has used.
type usage struct {
	// peak is the largest resident memory, and now what is resident, in bytes.
	peak, now int64
	cpu       time.Duration
	// written is how many bytes it has sent to the disk.
	written int64
}

// usageOf reads it from the kernel.
func usageOf(pid int) (u usage, err error) {
	status, err := fieldsOf(fmt.Sprintf("/proc/%d/status", pid), "VmHWM", "VmRSS")
	if err != nil {
		return u, err
	}
	u.peak, u.now = status[0]<<10, status[1]<<10
	io, err := fieldsOf(fmt.Sprintf("/proc/%d/io", pid), "write_bytes")
	if err != nil {
		return u, err
	}
	u.written = io[0]
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The fields after the command's name, which may hold spaces, in brackets.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, i := range []int{11, 12} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return u, fmt.Errorf("read the CPU time: %w", err)
		}
		ticks += n
	}
	u.cpu = time.Duration(ticks) * 10 * time.Millisecond
	return u, nil
}

// fieldsOf reads numbers by their names.
func fieldsOf(path string, names ...string) ([]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(names))
	for i, name := range names {
		_, rest, ok := strings.Cut("\n"+string(data), "\n"+name+":")
		if !ok {
			return nil, fmt.Errorf("%s has no %s", path, name)
		}
		out[i], err = strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read %s in %s: %w", name, path, err)
		}
	}
	return out, nil
}
