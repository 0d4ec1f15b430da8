package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Child is a process that is kept running: it is started again, after a pause
// that grows, whenever it ends before it was told to.
type Child struct {
	Name string
	// Start starts it.
	Start func() (*exec.Cmd, error)
	// Note writes down which process it is now.
	Note func(Process) error
	// Patience is how long it may take to stop.
	Patience time.Duration
	// Ended gets a value when it ends by itself, if somebody listens.
	Ended chan error
}

// The pauses before a restart, and how long a process must live to be seen as
// having started well.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
	goodLife     = time.Minute
)

// NextPause is how long to wait before the next start of a process that lived
// for a while; last is the pause before its last start, zero for the first.
func NextPause(last, lived time.Duration) time.Duration {
	if last == 0 || lived >= goodLife {
		return firstPause
	}
	return min(2*last, longestPause)
}

// Run keeps the process running until the context ends, and then stops it. It
// returns an error only if the process could not be stopped.
func (c *Child) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("process", c.Name)
	var pause time.Duration
	for {
		begin := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return err
		}
		select {
		case c.Ended <- err:
		default:
		}
		pause = NextPause(pause, time.Since(begin))
		logger.Info("Process ended; it is started again", "reason", err, "in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// once runs the process until it ends or, after ctx has ended, stops it.
func (c *Child) once(ctx context.Context) error {
	cmd, err := c.Start()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	process, err := Identify(cmd.Process.Pid)
	if err == nil {
		err = c.Note(process)
	}
	go func() { done <- cmd.Wait() }()
	if err != nil {
		_ = cmd.Process.Kill()
		<-done
		return err
	}
	select {
	case err := <-done:
		if err == nil {
			err = errors.New("exit status 0")
		}
		return err
	case <-ctx.Done():
		return stopChild(cmd, done, c.Patience)
	}
}

// stopChild asks a child to end, and ends it when the patience is over.
func stopChild(cmd *exec.Cmd, done <-chan error, patience time.Duration) error {
	_ = cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-done:
		return nil
	case <-time.After(patience):
	}
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", cmd.Process.Pid, err)
	}
	select {
	case <-done:
		return nil
	case <-time.After(KillPatience):
		return fmt.Errorf("process %d does not end", cmd.Process.Pid)
	}
}

// LastWords is the last line of a log, or its first one that starts with
// "error": what a process that ended wanted to say.
func LastWords(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	const tail = 16 << 10
	if len(raw) > tail {
		raw = raw[len(raw)-tail:]
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if lower := strings.ToLower(lines[i]); strings.HasPrefix(lower, "error") || strings.HasPrefix(lower, "panic") {
			return lines[i]
		}
	}
	return lines[len(lines)-1]
}
