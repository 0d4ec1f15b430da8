package nodestatus

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/agent/eviction"
)

// machine is what a look at the machine shows.
type machine struct {
	capacity  corev1.ResourceList
	info      corev1.NodeSystemInfo // without the versions of agent and runtime
	memory    usage                 // bytes
	disk      usage                 // bytes
	inodes    usage
	processes usage
	// imageFS and imageInodes are of the file system of images.
	imageFS, imageInodes usage
}

// observations are the facts that thresholds are about.
func (m machine) observations() eviction.Observations {
	out := eviction.Observations{}
	for signal, u := range map[eviction.Signal]usage{
		eviction.MemoryAvailable: m.memory, eviction.NodeFSAvailable: m.disk, eviction.NodeFSInodesFree: m.inodes,
		eviction.ImageFSAvailable: m.imageFS, eviction.ImageFSInodesFree: m.imageInodes, eviction.PIDAvailable: m.processes,
	} {
		out[signal] = eviction.Observation{Available: u.free, Capacity: u.total}
	}
	return out
}

// usage is how much there is of something and how much of that is free.
type usage struct{ total, free int64 }

// look reads the machine's facts below root, as configured. Images are in imageDir.
func look(c Config, imageDir string) (machine, error) {
	var m machine
	var err error
	m.memory, err = memory(c.Root, c.CgroupRoot)
	if err != nil {
		return machine{}, err
	}
	m.disk, m.inodes, err = disk(c.DataDir)
	if err != nil {
		return machine{}, err
	}
	m.imageFS, m.imageInodes, err = disk(imageDir)
	if err != nil {
		return machine{}, err
	}
	m.processes, err = processes(c.Root)
	if err != nil {
		return machine{}, err
	}
	m.capacity = corev1.ResourceList{
		corev1.ResourceCPU:              cpus(c.Root, c.CgroupRoot),
		corev1.ResourceMemory:           *resource.NewQuantity(m.memory.total, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.disk.total, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(c.MaxPods, resource.DecimalSI),
	}
	if err := hugePages(c.Root, m.capacity); err != nil {
		return machine{}, err
	}
	m.info, err = systemInfo(c.Root)
	return m, err
}

func memory(root, cgroup string) (usage, error) {
	data, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return usage{}, fmt.Errorf("read memory: %w", err)
	}
	var u usage
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		value, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			u.total = value << 10
		case "MemAvailable:":
			u.free = value << 10
		}
	}
	if u.total == 0 {
		return usage{}, errors.New("read memory: meminfo has no MemTotal")
	}
	for _, dir := range cgroupDirs(cgroup) {
		limit, used := cgroupMemory(root, dir)
		if limit > 0 && limit < u.total {
			u.total = limit
			u.free = min(u.free, max(limit-used, 0))
		}
	}
	return u, nil
}

// cgroupDirs are the root cgroup and the node's own; both may be limited.
func cgroupDirs(cgroup string) []string {
	if cgroup == "" || cgroup == "/" {
		return []string{""}
	}
	return []string{"", cgroup}
}

// cgroupMemory reads limit and use of a cgroup, of version 2 or else 1; 0 where there is no limit. What the kernel
// keeps of files that nobody has used lately is not in use.
func cgroupMemory(root, cgroup string) (limit, used int64) {
	dir := filepath.Join(root, "sys/fs/cgroup", cgroup)
	limitName, usedName, cacheName := "memory.max", "memory.current", "inactive_file"
	if _, err := os.Stat(filepath.Join(dir, limitName)); err != nil {
		dir = filepath.Join(root, "sys/fs/cgroup/memory", cgroup)
		limitName, usedName, cacheName = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
	}
	limit, _ = readNumber(filepath.Join(dir, limitName)) // "max" is 0 here: no limit
	used, _ = readNumber(filepath.Join(dir, usedName))
	return limit, used - readField(filepath.Join(dir, "memory.stat"), cacheName)
}

// readField reads one number of a file of names and numbers; 0 when it isn't there.
func readField(path, name string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

// cpus is the number of CPUs, or what the cgroups' quotas leave of them.
func cpus(root, cgroup string) resource.Quantity {
	milli := int64(runtime.NumCPU()) * 1000
	base := filepath.Join(root, "sys/fs/cgroup")
	for _, dir := range cgroupDirs(cgroup) {
		quota, period := int64(0), int64(0)
		if data, err := os.ReadFile(filepath.Join(base, dir, "cpu.max")); err == nil {
			if fields := strings.Fields(string(data)); len(fields) == 2 {
				quota, _ = strconv.ParseInt(fields[0], 10, 64) // "max" is 0 here: no quota
				period, _ = strconv.ParseInt(fields[1], 10, 64)
			}
		} else {
			quota, _ = readNumber(filepath.Join(base, "cpu", dir, "cpu.cfs_quota_us"))
			period, _ = readNumber(filepath.Join(base, "cpu", dir, "cpu.cfs_period_us"))
		}
		if quota > 0 && period > 0 {
			milli = min(milli, quota*1000/period)
		}
	}
	return *resource.NewMilliQuantity(milli, resource.DecimalSI)
}

func disk(dir string) (space, inodes usage, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return usage{}, usage{}, fmt.Errorf("read free disk space of %s: %w", dir, err)
	}
	size := stat.Bsize
	return usage{total: int64(stat.Blocks) * size, free: int64(stat.Bavail) * size}, usage{
		total: int64(stat.Files),
		free:  int64(stat.Ffree),
	}, nil
}

// processes counts threads too, because they take process IDs.
func processes(root string) (usage, error) {
	total := int64(1<<63 - 1)
	for _, name := range []string{"pid_max", "threads-max"} {
		if limit, ok := readNumber(filepath.Join(root, "proc/sys/kernel", name)); ok {
			total = min(total, limit)
		}
	}
	data, err := os.ReadFile(filepath.Join(root, "proc/loadavg"))
	if err != nil {
		return usage{}, fmt.Errorf("count processes: %w", err)
	}
	fields := strings.Fields(string(data))
	if len(fields) < 4 {
		return usage{}, fmt.Errorf("count processes: loadavg is %q", data)
	}
	_, running, _ := strings.Cut(fields[3], "/")
	used, err := strconv.ParseInt(running, 10, 64)
	if err != nil {
		return usage{}, fmt.Errorf("count processes: %w", err)
	}
	return usage{total: total, free: total - used}, nil
}

// hugePages adds the machine's huge pages to capacity, by their size.
func hugePages(root string, capacity corev1.ResourceList) error {
	dir := filepath.Join(root, "sys/kernel/mm/hugepages")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read huge pages: %w", err)
	}
	for _, entry := range entries {
		size, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(entry.Name(), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		count, ok := readNumber(filepath.Join(dir, entry.Name(), "nr_hugepages"))
		if !ok {
			continue
		}
		name := corev1.ResourceHugePagesPrefix + resource.NewQuantity(size<<10, resource.BinarySI).String()
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(count*size<<10, resource.BinarySI)
	}
	return nil
}

func systemInfo(root string) (corev1.NodeSystemInfo, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return corev1.NodeSystemInfo{}, fmt.Errorf("read kernel version: %w", err)
	}
	info := corev1.NodeSystemInfo{
		MachineID:       readLine(filepath.Join(root, "etc/machine-id")),
		SystemUUID:      readLine(filepath.Join(root, "sys/class/dmi/id/product_uuid")),
		BootID:          readLine(filepath.Join(root, "proc/sys/kernel/random/boot_id")),
		KernelVersion:   unix.ByteSliceToString(name.Release[:]),
		OSImage:         osImage(filepath.Join(root, "etc/os-release")),
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
	}
	if info.SystemUUID == "" {
		info.SystemUUID = info.MachineID
	}
	return info, nil
}

// osImage is the pretty name of the operating system.
func osImage(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "Linux"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(value, `"'`)
		}
	}
	return "Linux"
}

// readLine reads a file of one line; "" when the machine doesn't have it.
func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func readNumber(path string) (int64, bool) {
	n, err := strconv.ParseInt(readLine(path), 10, 64)
	return n, err == nil
}

// userHZ is how many ticks a second has where the kernel tells processor time to programs.
const userHZ = 100

// Capacity is the machine's memory in bytes and its processors, as last measured.
func (r *Reporter) Capacity() (memory int64, cores int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.capacity.Memory().Value(), int(r.capacity.Cpu().Value())
}

// Whole is all that the machine has, as last measured, and how many processes and threads it can have.
func (r *Reporter) Whole() (capacity corev1.ResourceList, processes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.capacity.DeepCopy(), r.processes
}

// Use is the processor time that the machine has spent since it started, all processors together, and the memory in
// use, in bytes.
func (r *Reporter) Use() (cpu time.Duration, used int64, err error) {
	m, err := memory(r.cfg.Root, r.cfg.CgroupRoot)
	if err != nil {
		return 0, 0, err
	}
	data, err := os.ReadFile(filepath.Join(r.cfg.Root, "proc/stat"))
	if err != nil {
		return 0, 0, fmt.Errorf("read processor time: %w", err)
	}
	ticks, err := busyTicks(string(data))
	return time.Duration(ticks) * (time.Second / userHZ), m.total - m.free, err
}

// busyTicks adds up the kinds of time in the first line of /proc/stat that are not idle.
func busyTicks(stat string) (int64, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("read processor time: stat begins with %q", line)
	}
	var sum int64
	for i, field := range fields[1:9] {
		if i == 3 || i == 4 {
			continue // idle, and waiting for a disk
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read processor time: %w", err)
		}
		sum += n
	}
	return sum, nil
}
