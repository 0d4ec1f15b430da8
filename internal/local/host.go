package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// HostChanges is what clusters changed on the machine itself, for all of them:
// the last one that stops takes it back, whichever was the first.
type HostChanges struct {
	// Dirs are folders that did not exist before, in the order of making.
	Dirs []string
	// Forwarding says that IPv4 forwarding was off before.
	Forwarding bool
}

// hostDir holds one file per change. It goes with a restart of the machine, as
// do the changes that matter.
const hostDir = "/run/everynode-host"

const forwardingMark = "forwarding"

// noteHostChange writes a change down, before it is made.
func noteHostChange(name string) error {
	if err := os.MkdirAll(hostDir, 0o755); err != nil {
		return fmt.Errorf("note a change of this machine: %w", err)
	}
	if err := os.WriteFile(filepath.Join(hostDir, name), nil, 0o644); err != nil {
		return fmt.Errorf("note a change of this machine: %w", err)
	}
	return nil
}

// makeHostDir makes a folder of the machine that nodes need, if it is missing.
func makeHostDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := noteHostChange(strings.ReplaceAll(dir, "/", "+")); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s, which nodes mount over: %w", dir, err)
	}
	return nil
}

// hostChanges reads what noteHostChange wrote.
func hostChanges() (HostChanges, error) {
	var changes HostChanges
	entries, err := os.ReadDir(hostDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return changes, fmt.Errorf("read the changes of this machine: %w", err)
	}
	for _, e := range entries {
		if e.Name() == forwardingMark {
			changes.Forwarding = true
		} else {
			changes.Dirs = append(changes.Dirs, strings.ReplaceAll(e.Name(), "+", "/"))
		}
	}
	if err == nil {
		changes.Dirs = append([]string{hostDir}, changes.Dirs...) // removed last, when it is empty
	}
	return changes, nil
}

// forgetHostChange removes what noteHostChange wrote; none is fine.
func forgetHostChange(name string) error {
	if err := os.Remove(filepath.Join(hostDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget a change of this machine: %w", err)
	}
	return nil
}
