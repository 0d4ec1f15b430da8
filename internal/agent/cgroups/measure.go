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

// Unlimited is about what a kernel says of a limit that is none; larger ones are none either.
const Unlimited = 1 << 62

// Usage is what a cgroup uses. Times are in nanoseconds, sizes in bytes.
type Usage struct {
	CPU, UserCPU, KernelCPU uint64
	// Periods are those of the bandwidth that a limit allows, Throttled those in which it was used up, for ThrottledTime
	// in all.
	Periods, Throttled, ThrottledTime uint64
	Memory, MostMemory, MemoryLimit   uint64
	// MemoryFailures count how often the limit was in the way.
	MemoryFailures                    uint64
	RSS, Cache, MappedFile, Swap      uint64
	InactiveFile, Faults, MajorFaults uint64
	Tasks, TaskLimit                  uint64
	BytesRead, BytesWritten           uint64
	ReadOperations, WriteOperations   uint64
}

// WorkingSet is the memory that is in use and cannot be dropped at once.
func (u *Usage) WorkingSet() uint64 { return u.Memory - min(u.InactiveFile, u.Memory) }

// Measure reads what a cgroup uses, which is at path within each hierarchy; nil if it is gone.
func (c *Cgroups) Measure(path string) (*Usage, error) {
	measure := c.measureLegacy
	if c.Unified() {
		measure = c.measureUnified
	}
	u, err := measure(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("measure cgroup %s: %w", path, err)
	}
	return u, nil
}

// measureUnified is Measure with version 2.
func (c *Cgroups) measureUnified(path string) (*Usage, error) {
	m, err := c.open(path)
	if err != nil {
		return nil, err
	}
	s, err := m.Stats(&library.StatsOptions{Controllers: library.CPU | library.Memory | library.Pids | library.IO})
	if err != nil {
		return nil, err
	}
	return usageOf(s), nil
}

// usageOf is what the library read. Versions of cgroups name the statistics of memory differently.
func usageOf(s *library.Stats) *Usage {
	first := func(keys ...string) uint64 {
		for _, key := range keys {
			if v, ok := s.MemoryStats.Stats[key]; ok {
				return v
			}
		}
		return 0
	}
	cpu, memory := s.CpuStats, s.MemoryStats
	u := &Usage{
		CPU: cpu.CpuUsage.TotalUsage, UserCPU: cpu.CpuUsage.UsageInUsermode, KernelCPU: cpu.CpuUsage.UsageInKernelmode,
		Periods: cpu.ThrottlingData.Periods, Throttled: cpu.ThrottlingData.ThrottledPeriods,
		ThrottledTime: cpu.ThrottlingData.ThrottledTime,
		Memory:        memory.Usage.Usage, MostMemory: memory.Usage.MaxUsage, MemoryLimit: memory.Usage.Limit,
		MemoryFailures: memory.Usage.Failcnt,
		RSS:            first("total_rss", "anon"), Cache: first("total_cache", "file"),
		MappedFile: first("total_mapped_file", "file_mapped"),
		Swap:       memory.SwapOnlyUsage.Usage, InactiveFile: first("total_inactive_file", "inactive_file"),
		Faults: first("total_pgfault", "pgfault"), MajorFaults: first("total_pgmajfault", "pgmajfault"),
		Tasks: s.PidsStats.Current, TaskLimit: s.PidsStats.Limit,
	}
	if u.Swap == 0 {
		u.Swap = first("total_swap")
	}
	u.BytesRead, u.BytesWritten = readAndWritten(s.BlkioStats.IoServiceBytesRecursive)
	u.ReadOperations, u.WriteOperations = readAndWritten(s.BlkioStats.IoServicedRecursive)
	return u
}

func readAndWritten(entries []library.BlkioStatEntry) (read, written uint64) {
	for _, e := range entries {
		switch e.Op {
		case "Read", "read":
			read += e.Value
		case "Write", "write":
			written += e.Value
		}
	}
	return read, written
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

// open opens a cgroup for reading. The library would look for the hierarchies each time, which takes longer than
// reading them.
func (c *Cgroups) open(path string) (library.Manager, error) {
	config := &library.Cgroup{Resources: &library.Resources{SkipDevices: true}}
	if c.Unified() {
		return fs2.NewManager(config, filepath.Join(c.mount, path))
	}
	paths := map[string]string{}
	// processes are listed by the last one
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "blkio", "devices"} {
		paths[controller] = filepath.Join(c.mount, controller, path)
	}
	return legacy.NewManager(config, paths)
}
