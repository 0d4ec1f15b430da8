package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of cpuacct.stat, with every architecture's kernel.
const tick = uint64(time.Second / 100)

// texts are what files are read into.
var texts = sync.Pool{New: func() any { return &folder{text: make([]byte, 4<<10)} }}

// folder is a cgroup in one hierarchy. Whoever measures a node reads thousands of files, again and again: they are
// opened below their folder, as plain descriptors, and read into the same place.
type folder struct {
	fd   int
	path string
	text []byte
}

// measureLegacy is Measure with version 1. The library reads forty files there, of which a dozen are wanted.
func (c *Cgroups) measureLegacy(path string) (*Usage, error) {
	u := &Usage{}
	f := texts.Get().(*folder)
	defer texts.Put(f)
	found := false
	for _, hierarchy := range []struct {
		name string
		read func(*folder, *Usage) error
	}{
		{"cpuacct", (*folder).processor},
		{"cpu", (*folder).throttling},
		{"memory", (*folder).memory},
		{"pids", (*folder).tasks},
		{"blkio", (*folder).disks},
	} {
		err := f.within(filepath.Join(c.mount, hierarchy.name, path), func() error { return hierarchy.read(f, u) })
		if errors.Is(err, fs.ErrNotExist) {
			continue // not every kernel has every hierarchy
		}
		if errors.Is(err, unix.ENODEV) {
			return nil, fs.ErrNotExist // it went while its files were open
		}
		if err != nil {
			return nil, err
		}
		found = true
	}
	if !found {
		return nil, fs.ErrNotExist
	}
	return u, nil
}

// within opens the folder while do runs.
func (f *folder) within(path string, do func() error) error {
	fd, err := openAt(unix.AT_FDCWD, path, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	f.fd, f.path = fd, path
	return do()
}

func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// read returns what is in a file of the folder, until the next one is read.
func (f *folder) read(name string) ([]byte, error) {
	fd, err := openAt(f.fd, name, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open %s/%s: %w", f.path, name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	for size := 0; ; {
		n, err := unix.Read(fd, f.text[size:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("read %s/%s: %w", f.path, name, err)
		case n == 0:
			return f.text[:size], nil
		}
		if size += n; size == len(f.text) {
			f.text = append(f.text, make([]byte, size)...)
		}
	}
}

// number reads a file with one number. A limit that is none is the largest.
func (f *folder) number(name string, into *uint64) error {
	text, err := f.read(name)
	if err != nil {
		return err
	}
	if text = bytes.TrimSpace(text); string(text) == "max" {
		*into = 1<<64 - 1
		return nil
	}
	*into, err = count(text)
	if err != nil {
		return fmt.Errorf("read %s/%s: %w", f.path, name, err)
	}
	return nil
}

// count takes what is below zero, as kernels have said of memory, for zero.
func count(text []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil && len(text) > 1 && text[0] == '-' {
		_, err = strconv.ParseUint(string(text[1:]), 10, 64)
		return 0, err
	}
	return n, err
}

// keyed reads a file of lines with a key and a number. Where says where the number of a key goes, nil for nowhere.
func (f *folder) keyed(name string, where func(key []byte) *uint64) error {
	text, err := f.read(name)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		into := where(key)
		if into == nil {
			continue
		}
		*into, err = count(value)
		if err != nil {
			return fmt.Errorf("read %s/%s: line %q: %w", f.path, name, line, err)
		}
	}
	return nil
}

func (f *folder) processor(u *Usage) error {
	err := f.keyed("cpuacct.stat", func(key []byte) *uint64 {
		switch string(key) {
		case "user":
			return &u.UserCPU
		case "system":
			return &u.KernelCPU
		}
		return nil
	})
	u.UserCPU *= tick
	u.KernelCPU *= tick
	if err != nil {
		return err
	}
	return f.number("cpuacct.usage", &u.CPU)
}

// throttling is there if the kernel can limit processor time.
func (f *folder) throttling(u *Usage) error {
	return f.keyed("cpu.stat", func(key []byte) *uint64 {
		switch string(key) {
		case "nr_periods":
			return &u.Periods
		case "nr_throttled":
			return &u.Throttled
		case "throttled_time":
			return &u.ThrottledTime
		}
		return nil
	})
}

func (f *folder) memory(u *Usage) error {
	var swapped, both uint64
	err := f.keyed("memory.stat", func(key []byte) *uint64 {
		switch string(key) {
		case "total_rss":
			return &u.RSS
		case "total_cache":
			return &u.Cache
		case "total_mapped_file":
			return &u.MappedFile
		case "total_inactive_file":
			return &u.InactiveFile
		case "total_pgfault":
			return &u.Faults
		case "total_pgmajfault":
			return &u.MajorFaults
		case "total_swap":
			return &swapped
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name string
		into *uint64
	}{
		{"memory.usage_in_bytes", &u.Memory},
		{"memory.max_usage_in_bytes", &u.MostMemory},
		{"memory.failcnt", &u.MemoryFailures},
		{"memory.limit_in_bytes", &u.MemoryLimit},
	} {
		if err := f.number(file.name, file.into); err != nil {
			return err
		}
	}
	// Kernels count swap only if they are told to.
	if err := f.number("memory.memsw.usage_in_bytes", &both); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	u.Swap = both - min(both, u.Memory)
	if u.Swap == 0 {
		u.Swap = swapped
	}
	return nil
}

func (f *folder) tasks(u *Usage) error {
	if err := f.number("pids.current", &u.Tasks); err != nil {
		return err
	}
	err := f.number("pids.max", &u.TaskLimit)
	if u.TaskLimit >= Unlimited {
		u.TaskLimit = 0
	}
	return err
}

// counters are the files of the kernel's schedulers of disks: how many operations there were, and how many bytes.
var counters = [][2]string{
	{"blkio.bfq.io_serviced_recursive", "blkio.bfq.io_service_bytes_recursive"},
	{"blkio.io_serviced_recursive", "blkio.io_service_bytes_recursive"},
	{"blkio.throttle.io_serviced_recursive", "blkio.throttle.io_service_bytes_recursive"},
	{"blkio.throttle.io_serviced", "blkio.throttle.io_service_bytes"},
}

// disks reads what the first scheduler counted that counted something.
func (f *folder) disks(u *Usage) error {
	for _, names := range counters {
		counted, err := f.operations(names[0], &u.ReadOperations, &u.WriteOperations)
		if err != nil {
			return err
		}
		if counted {
			_, err = f.operations(names[1], &u.BytesRead, &u.BytesWritten)
			return err
		}
	}
	return nil
}

// operations sums up a file with lines such as "8:0 Read 12". It says whether there is one with a device.
func (f *folder) operations(name string, read, written *uint64) (counted bool, err error) {
	text, err := f.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(text) {
		device, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		operation, value, ok := bytes.Cut(rest, []byte(" "))
		if !ok || !bytes.Contains(device, []byte(":")) {
			continue // the total of all
		}
		counted = true
		n, err := count(value)
		if err != nil {
			return counted, fmt.Errorf("read %s/%s: line %q: %w", f.path, name, line, err)
		}
		switch string(operation) {
		case "Read":
			*read += n
		case "Write":
			*written += n
		}
	}
	return counted, nil
}
