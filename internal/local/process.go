package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootID tells one run of the machine from the next: process numbers of an
// earlier one mean nothing.
func bootID() (string, error) {
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

// identify returns the process with a number, as it is now.
func identify(pid int) (Process, error) {
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

// alive reports whether exactly this process still runs.
func (p Process) alive() bool {
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

// signal sends a signal to exactly this process; one that has ended is fine.
// The pidfd is opened before the check, so the number cannot change hands
// between the two.
func (p Process) signal(s unix.Signal) error {
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
	if !p.alive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", unix.SignalName(s), p.PID, err)
	}
	return nil
}

// waitGone waits until the process has ended.
func (p Process) waitGone(ctx context.Context) error {
	for p.alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d did not end: %w", p.PID, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// stop asks the process to end, and ends it when the patience is over.
func (p Process) stop(ctx context.Context, patience time.Duration) error {
	if err := p.signal(unix.SIGTERM); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if p.waitGone(waiting) == nil {
		return nil
	}
	return p.kill(ctx)
}

// killPatience bounds the kernel's work after SIGKILL; a process namespace with
// many pods takes a moment.
const killPatience = 30 * time.Second

// kill ends the process and waits for its end.
func (p Process) kill(ctx context.Context) error {
	if err := p.signal(unix.SIGKILL); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	return p.waitGone(waiting)
}
