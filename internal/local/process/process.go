// Package process starts processes on the host and inside nodes, keeps them running, and signals none but those it
// means.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// BootID tells one run of the machine from the next: process numbers of an
// earlier one mean nothing.
func BootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the machine's boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// parseStat takes from /proc/PID/stat whether the process still runs (a zombie
// does not, unless other threads go on: so looks a process in the middle of an
// exec), its parent, and its start time in clock ticks since boot.
func parseStat(stat string) (parent int, start uint64, running bool, err error) {
	// The name, in parentheses, may hold anything; what follows may not.
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	const state, ppid, threads, startTime = 0, 1, 17, 19
	if end < 0 || len(fields) <= startTime {
		return 0, 0, false, fmt.Errorf("unexpected text %q", stat)
	}
	parent, err = strconv.Atoi(fields[ppid])
	if err != nil {
		return 0, 0, false, err
	}
	start, err = strconv.ParseUint(fields[startTime], 10, 64)
	running = fields[state] != "X" && (fields[state] != "Z" || fields[threads] != "0" && fields[threads] != "1")
	return parent, start, running, err
}

// Identify returns the process with a number, as it is now.
func Identify(pid int) (Process, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	_, start, _, err := parseStat(string(raw))
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// Alive reports whether exactly this process still runs.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return false
	}
	_, start, running, err := parseStat(string(raw))
	return err == nil && running && start == p.Start
}

// Signal sends a signal to exactly this process; one that has ended is fine.
// The pidfd is opened before the check, so the number cannot change hands
// between the two.
func (p Process) Signal(s unix.Signal) error {
	if p.PID <= 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(s), p.PID, err)
	}
	return nil
}

// WaitGone waits until the process has ended.
func (p Process) WaitGone(ctx context.Context) error {
	for p.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d did not end: %w", p.PID, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Stop asks the process to end, and ends it when the patience is over.
func (p Process) Stop(ctx context.Context, patience time.Duration) error {
	if err := p.Signal(unix.SIGTERM); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if p.WaitGone(waiting) == nil {
		return nil
	}
	return p.Kill(ctx)
}

// KillPatience bounds the kernel's work after SIGKILL; a process namespace with
// many pods takes a moment.
const KillPatience = 30 * time.Second

// Kill ends the process and waits for its end.
func (p Process) Kill(ctx context.Context) error {
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), KillPatience)
	defer cancel()
	return p.WaitGone(waiting)
}

// Process is a process number and when it started, in clock ticks since boot:
// together they are never used twice.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// SearchPath is $PATH with the administrator's folders, which a plain user's
// and some containers' do not have.
func SearchPath() string {
	path := os.Getenv("PATH")
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"} {
		found := false
		for have := range strings.SplitSeq(path, ":") {
			found = found || have == dir
		}
		if !found {
			path = strings.TrimPrefix(path+":"+dir, ":")
		}
	}
	return path
}

// Environment reads a process's environment. In the middle of an exec the
// kernel shows none, so a program without one is looked at until the deadline.
// A kernel thread, which has no program, never has one.
func Environment(dir string, deadline time.Time) []byte {
	for {
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || len(environment) > 0 || time.Now().After(deadline) {
			return environment
		}
		if _, err := os.Readlink(filepath.Join(dir, "exe")); err != nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}
