package scrape

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
)

// measure reads what a cgroup uses; nil if it is gone.
func measure(cgroup string) (*cgroups.Stats, error) {
	m, err := openCgroup(cgroup)
	if err != nil {
		return nil, err
	}
	stats, err := m.Stats(&cgroups.StatsOptions{Controllers: cgroups.CPU | cgroups.Memory | cgroups.Pids | cgroups.IO})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("measure cgroup %s: %w", cgroup, err)
	}
	return stats, nil
}

// processes lists the processes in a cgroup, none if it is gone.
func processes(cgroup string) ([]int, error) {
	m, err := openCgroup(cgroup)
	if err != nil {
		return nil, err
	}
	pids, err := m.GetPids()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the processes of cgroup %s: %w", cgroup, err)
	}
	return pids, nil
}

func openCgroup(cgroup string) (cgroups.Manager, error) {
	m, err := manager.New(&cgroups.Cgroup{Path: cgroup, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", cgroup, err)
	}
	return m, nil
}
