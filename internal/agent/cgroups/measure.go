package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	library "github.com/opencontainers/cgroups"
	legacy "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
)

// Measure reads what a cgroup uses, which is at path within each hierarchy; nil if it is gone.
func (c *Cgroups) Measure(path string) (*library.Stats, error) {
	m, err := c.open(path)
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats(&library.StatsOptions{Controllers: library.CPU | library.Memory | library.Pids | library.IO})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("measure cgroup %s: %w", path, err)
	}
	return stats, nil
}

// ProcessesIn lists the processes in a cgroup, none if it is gone.
func (c *Cgroups) ProcessesIn(path string) ([]int, error) {
	m, err := c.open(path)
	if err != nil {
		return nil, err
	}
	pids, err := m.GetPids()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the processes of cgroup %s: %w", path, err)
	}
	return pids, nil
}

// open opens a cgroup for reading. The library would look for the hierarchies each time, which takes longer than reading them.
func (c *Cgroups) open(path string) (library.Manager, error) {
	config := &library.Cgroup{Resources: &library.Resources{SkipDevices: true}}
	if c.Unified() {
		return fs2.NewManager(config, filepath.Join(c.mount, path))
	}
	paths := map[string]string{}
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "blkio", "devices"} { // processes are listed by the last one
		paths[controller] = filepath.Join(c.mount, controller, path)
	}
	return legacy.NewManager(config, paths)
}
