// Package usage reads from the kernel what a process uses and has used.
package usage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process uses and has used.
type Usage struct {
	// Peak is the largest resident memory, and Now what is resident, in bytes.
	Peak, Now int64
	CPU       time.Duration
	// Written is how many bytes it has sent to the disk.
	Written int64
}

// Of reads what a process of this machine uses.
func Of(pid int) (u Usage, err error) {
	status, err := fieldsOf(fmt.Sprintf("/proc/%d/status", pid), "VmHWM", "VmRSS")
	if err != nil {
		return u, err
	}
	u.Peak, u.Now = status[0]<<10, status[1]<<10
	io, err := fieldsOf(fmt.Sprintf("/proc/%d/io", pid), "write_bytes")
	if err != nil {
		return u, err
	}
	u.Written = io[0]
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
	u.CPU = time.Duration(ticks) * 10 * time.Millisecond
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
