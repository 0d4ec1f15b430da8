package cgroups

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	library "github.com/opencontainers/cgroups"
	"k8s.io/apimachinery/pkg/util/wait"
)

// byLibrary is what the library reads of a cgroup, all of it.
func byLibrary(t *testing.T, c *Cgroups, path string) Usage {
	t.Helper()
	m, err := c.open(path)
	if err != nil {
		t.Fatal(err)
	}
	stats, err := m.Stats(&library.StatsOptions{Controllers: library.CPU | library.Memory | library.Pids | library.IO})
	if err != nil {
		t.Fatal(err)
	}
	return *usageOf(stats)
}

// legacyFiles are those of a cgroup with version 1, each value another one.
var legacyFiles = map[string]string{
	"cpuacct/g/cpuacct.stat": "user 11\nsystem 7\n", "cpuacct/g/cpuacct.usage": "180000001\n",
	"cpuacct/g/cpuacct.usage_percpu": "180000000 1 \n", "cpuacct/g/cpuacct.usage_all": "cpu user system\n0 1 2\n",
	"cpu/g/cpu.stat":                           "nr_periods 21\nnr_throttled 22\nthrottled_time 23\nnr_bursts 0\n",
	"memory/g/memory.stat":                     "cache 1\nrss 2\nswap 3\ninactive_file 4\nhierarchical_memory_limit 5\ntotal_cache 31\ntotal_rss 32\ntotal_mapped_file 33\ntotal_inactive_file 34\ntotal_pgfault 35\ntotal_pgmajfault 36\ntotal_swap 37\n",
	"memory/g/memory.usage_in_bytes":           "1000\n",
	"memory/g/memory.max_usage_in_bytes":       "1001\n",
	"memory/g/memory.failcnt":                  "41\n",
	"memory/g/memory.limit_in_bytes":           "9223372036854771712\n",
	"memory/g/memory.memsw.usage_in_bytes":     "1100\n",
	"memory/g/memory.memsw.max_usage_in_bytes": "1200\n",
	"memory/g/memory.memsw.failcnt":            "41\n",
	"memory/g/memory.memsw.limit_in_bytes":     "9223372036854771712\n",
	"memory/g/memory.use_hierarchy":            "1\n",
	"pids/g/pids.current":                      "51\n",
	"pids/g/pids.max":                          "max\n",
	"blkio/g/blkio.throttle.io_serviced":       "8:0 Read 61\n8:0 Write 62\n8:0 Sync 1\n8:0 Async 2\n8:0 Discard 3\n8:0 Total 4\n253:1 Read 100\n253:1 Write 200\nTotal 5\n",
	"blkio/g/blkio.throttle.io_service_bytes":  "8:0 Read 63\n8:0 Write 64\n8:0 Sync 1\n8:0 Total 4\n253:1 Read 1000\n253:1 Write 2000\nTotal 5\n",
}

// With version 1, what is read is what the library reads, however the kernel was built.
func TestMeasureLegacy(t *testing.T) {
	const full, uncounted = "everything", "swap is not counted"
	for name, change := range map[string]map[string]string{
		full:                      nil,
		"a limit of processes":    {"pids/g/pids.max": "52\n"},
		"a memory limit":          {"memory/g/memory.limit_in_bytes": "4096\n"},
		uncounted:                 {"memory/g/memory.memsw.usage_in_bytes": ""},
		"nothing is swapped":      {"memory/g/memory.memsw.usage_in_bytes": "1000\n"},
		"below zero":              {"memory/g/memory.stat": "total_rss -12\ntotal_cache 3\n"},
		"no limits of processors": {"cpu/g/cpu.stat": ""},
		"bfq without any":         {"blkio/g/blkio.bfq.io_serviced_recursive": "Total 0\n", "blkio/g/blkio.bfq.io_service_bytes_recursive": "Total 0\n"},
		"bfq":                     {"blkio/g/blkio.bfq.io_serviced_recursive": "8:0 Read 3\n8:0 Write 4\nTotal 7\n", "blkio/g/blkio.bfq.io_service_bytes_recursive": "8:0 Read 5\nTotal 9\n"},
		"below, too":              {"blkio/g/blkio.throttle.io_serviced_recursive": "8:0 Write 4\nTotal 7\n", "blkio/g/blkio.throttle.io_service_bytes_recursive": "8:0 Write 5\nTotal 9\n"},
		"many disks":              {"blkio/g/blkio.throttle.io_serviced": manyDisks()},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for path, text := range legacyFiles {
				files[path] = text
			}
			for path, text := range change {
				files[path] = text
				if text == "" {
					delete(files, path)
				}
			}
			c := newGroups(t, Config{Node: "n", Mount: fakeFiles(t, files)})
			got, err := c.Measure("/g")
			if err != nil || got == nil {
				t.Fatal(got, err)
			}
			want := byLibrary(t, c, "/g")
			if name == uncounted {
				want.Swap = 37 // the library takes the memory from zero
			}
			if *got != want {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
			if want := (Usage{
				CPU: 180000001, UserCPU: 110000000, KernelCPU: 70000000, Periods: 21, Throttled: 22, ThrottledTime: 23,
				Memory: 1000, MostMemory: 1001, MemoryLimit: 9223372036854771712, MemoryFailures: 41,
				RSS: 32, Cache: 31, MappedFile: 33, Swap: 100, InactiveFile: 34, Faults: 35, MajorFaults: 36,
				Tasks: 51, BytesRead: 1063, BytesWritten: 2064, ReadOperations: 161, WriteOperations: 262,
			}); name == full && *got != want {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
}

// manyDisks is more than fits into one read.
func manyDisks() string {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "8:%d Read %d\n8:%d Write 1\n", i, i, i)
	}
	return text.String()
}

func TestMeasureFailures(t *testing.T) {
	c := newGroups(t, Config{Node: "n", Mount: fakeFiles(t, legacyFiles)})
	if u, err := c.Measure("/gone"); u != nil || err != nil {
		t.Errorf("a cgroup that is gone: %v, %v", u, err)
	}
	for path, text := range map[string]string{
		"cpuacct/g/cpuacct.usage": "many\n", "memory/g/memory.stat": "total_rss some\n", "pids/g/pids.max": "-\n", "blkio/g/blkio.throttle.io_serviced": "8:0 Read x\n",
	} {
		c := newGroups(t, Config{Node: "n", Mount: fakeFiles(t, legacyFiles)})
		write(t, filepath.Join(c.mount, path), text)
		if u, err := c.Measure("/g"); err == nil || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%s with %q: %v, %v", path, text, u, err)
		}
	}
}

// The kernel tells this reader and the library the same of a program that worked and is stopped.
func TestMeasureInTheKernel(t *testing.T) {
	c, _ := realGroups(t, Cgroupfs)
	path := c.Root() + "/measured"
	program := exec.Command("/bin/sh", "-c", `read line; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; kill -STOP $$`)
	begin, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_, _ = program.Process.Kill(), program.Wait()
		}
	}
	t.Cleanup(end)
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "blkio", "devices"} {
		dir := filepath.Join(c.mount, controller, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(program.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin.Close(); err != nil {
		t.Fatal(err)
	}
	var got *Usage
	err = wait.PollUntilContextCancel(t.Context(), time.Millisecond, true, func(context.Context) (bool, error) {
		before := byLibrary(t, c, path)
		got, err = c.Measure(path)
		if err != nil || got == nil {
			return false, fmt.Errorf("%v, %w", got, err)
		}
		worked := got.CPU > 0 && got.Faults > 0 && got.Tasks == 1 && got.Memory > 0 && got.RSS > 0
		return worked && before == *got && byLibrary(t, c, path) == before, nil
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	end()
	for _, controller := range []string{"cpu", "cpuacct", "memory", "pids", "blkio", "devices"} {
		if err := os.Remove(filepath.Join(c.mount, controller, path)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if u, err := c.Measure(path); u != nil || err != nil {
		t.Errorf("a cgroup that is gone: %v, %v", u, err)
	}
}
