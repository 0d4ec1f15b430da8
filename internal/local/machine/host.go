package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// HostChanges is what clusters changed on the machine itself, for all of them:
// the last one that stops takes it back, whichever was the first.
type HostChanges struct {
	// Dirs are folders that did not exist before, in the order of making.
	Dirs []string
	// Forwarding says that IPv4 forwarding was off before.
	Forwarding bool
}

// ChangesDir holds one file per change, and is locked by whoever makes one. It goes with a restart of the machine, as
// do the changes that matter.
const ChangesDir = "/run/everynode-host"

// ForwardingMark says among the changes that a cluster switched forwarding on.
const ForwardingMark = "forwarding"

// Lock waits for the machine's lock and returns how to give it back. Who
// changes what all clusters share holds it until the host's link shows that the
// cluster exists, and who takes it back holds it while it looks for links: so a
// cluster that stops does not take away what one that starts has just found.
//
// The folder itself is the lock, because it goes with the last cluster.
func Lock(ctx context.Context) (release func(), err error) {
	for {
		if err := os.MkdirAll(ChangesDir, 0o755); err != nil {
			return nil, fmt.Errorf("lock the changes of this machine: %w", err)
		}
		dir, err := os.Open(ChangesDir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the last cluster has just gone
		}
		if err != nil {
			return nil, fmt.Errorf("lock the changes of this machine: %w", err)
		}
		if err := waitForLock(ctx, dir); err != nil {
			_ = dir.Close()
			return nil, fmt.Errorf("lock the changes of this machine (%s): %w", ChangesDir, err)
		}
		mine, mineErr := dir.Stat()
		now, nowErr := os.Stat(ChangesDir)
		if mineErr == nil && nowErr == nil && os.SameFile(mine, now) {
			return func() { _ = dir.Close() }, nil
		}
		_ = dir.Close() // whoever held the lock removed the folder
	}
}

func waitForLock(ctx context.Context, f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// NoteChange writes a change down, before it is made.
func NoteChange(name string) error {
	if err := os.MkdirAll(ChangesDir, 0o755); err != nil {
		return fmt.Errorf("note a change of this machine: %w", err)
	}
	if err := os.WriteFile(filepath.Join(ChangesDir, name), nil, 0o644); err != nil {
		return fmt.Errorf("note a change of this machine: %w", err)
	}
	return nil
}

// MakeDir makes a folder of the machine that nodes need, if it is missing.
func MakeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := NoteChange(strings.ReplaceAll(dir, "/", "+")); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s, which nodes mount over: %w", dir, err)
	}
	return nil
}

// ReadHostChanges reads what noteHostChange wrote.
func ReadHostChanges() (HostChanges, error) {
	var changes HostChanges
	entries, err := os.ReadDir(ChangesDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return changes, fmt.Errorf("read the changes of this machine: %w", err)
	}
	for _, e := range entries {
		if e.Name() == ForwardingMark {
			changes.Forwarding = true
		} else {
			changes.Dirs = append(changes.Dirs, strings.ReplaceAll(e.Name(), "+", "/"))
		}
	}
	if err == nil {
		changes.Dirs = append([]string{ChangesDir}, changes.Dirs...) // removed last, when it is empty
	}
	return changes, nil
}

// ForgetChange removes what noteHostChange wrote; none is fine.
func ForgetChange(name string) error {
	if err := os.Remove(filepath.Join(ChangesDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget a change of this machine: %w", err)
	}
	return nil
}
