package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	library "github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// How long killed processes may take to be gone, and how often is looked.
const (
	strayPatience = 10 * time.Second
	strayInterval = 20 * time.Millisecond
)

// KillStrays kills what runs in the pod's cgroups, and returns how many processes that were. It is to be called when
// the runtime knows of no container of the pod that runs: one whose state was taken from it forgets what it started,
// and a second copy of the pod would run beside the first.
func (c *Cgroups) KillStrays(ctx context.Context, uid types.UID) (killed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, strayPatience)
	defer cancel()
	seen := map[int]bool{}
	for {
		strays, err := c.strays(uid)
		if err != nil {
			return len(seen), fmt.Errorf("look for processes that pod %s left: %w", uid, err)
		}
		if len(strays) == 0 {
			return len(seen), nil
		}
		err = c.kill(uid, strays)
		if err != nil {
			return len(seen), fmt.Errorf("kill processes that pod %s left: %w", uid, err)
		}
		for _, pid := range strays {
			seen[pid] = true
		}
		select {
		case <-ctx.Done():
			return len(seen), fmt.Errorf("processes that pod %s left do not end: %v", uid, strays)
		case <-time.After(strayInterval):
		}
	}
}

// strays are the processes in the pod's cgroups.
func (c *Cgroups) strays(uid types.UID) (pids []int, err error) {
	hierarchies, err := c.hierarchies()
	if err != nil {
		return nil, err
	}
	layouts := []layout{c.layout}
	if c.former != nil {
		layouts = append(layouts, *c.former)
	}
	for _, l := range layouts {
		for _, class := range classes {
			for _, mount := range hierarchies {
				found, err := library.GetAllPids(filepath.Join(mount, l.path(ofPod(class, uid))))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, err
				}
				pids = append(pids, found...)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// kill kills processes that are still in the pod's cgroups when nobody else can get their numbers any more.
func (c *Cgroups) kill(uid types.UID, pids []int) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		held[pid] = fd
	}
	still, err := c.strays(uid)
	if err != nil {
		return err
	}
	for _, pid := range still {
		fd, ok := held[pid]
		if !ok {
			continue
		}
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
